#!/bin/sh
# image.sh PROGRAM ROOT: puts the program into the folder ROOT with the libraries that it is linked to, and nothing
# else: no shell, no packages. The preset `portable` needs few of them. Then, with Containerfile:
#   ./image.sh build/portable/app/foresay root && cp model.toml *.gguf keys root/models/
#   buildah build -t foresay .            (or docker build)
#   podman run --read-only --cap-drop=all -p 127.0.0.1:8080:8080 foresay
set -eu
program=$1 root=$2
mkdir -p "$root/usr/bin" "$root/models" "$root/tmp"
chmod 1777 "$root/tmp"
cp "$program" "$root/usr/bin/foresay"
# "name => /path (address)", and the loader, which stands alone.
ldd "$program" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
