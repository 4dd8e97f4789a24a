#!/bin/sh
# image.sh PROGRAM ROOT: puts the program of the preset `portable` (or `cuda`) into the folder ROOT, with the C and C++
# libraries that it needs, and nothing else: no shell, no packages. Every other library is part of the program; one that
# is linked to others is refused. Then, with Containerfile:
#   ./image.sh build/portable/app/foresay root && cp model.toml *.gguf keys root/models/
#   buildah build -t foresay .            (or docker build)
#   podman run --read-only --cap-drop=all -p 127.0.0.1:8080:8080 foresay
set -eu
program=$1 root=$2
# "name => /path (address)", and the loader, which stands alone.
libraries=$(ldd "$program" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p')
for library in $libraries; do
  case ${library##*/} in
    libc.so.* | libm.so.* | libgcc_s.so.* | libstdc++.so.* | ld-linux*) ;;
    *)
      echo "$program needs ${library##*/}; give the program of the preset portable," \
        "which needs libc and libstdc++ alone" >&2
      exit 1
      ;;
  esac
done
mkdir -p "$root/usr/bin" "$root/models" "$root/tmp"
chmod 1777 "$root/tmp"
cp "$program" "$root/usr/bin/foresay"
for library in $libraries; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done
