#!/bin/sh
# verify.sh PROGRAM COUNT: the same bytes over HTTP. COUNT requests of all protocols at 64 connections, some of whose
# clients leave; each answer equals that of a fresh server which gets the requests one after the other, drafts with
# another drafter or not at all, and does not use its cache.
set -e
folder=$(mktemp -d)
trap 'kill $first $second 2> /dev/null || true; rm -rf "$folder"' EXIT
serve() {  # NAME OPTIONS
    name=$1
    shift
    "$program" serve --listen 127.0.0.1:0 --context 1024 "$@" > "$folder/$name" 2>&1 &
}
url() {
    for _ in $(seq 600); do
        grep -q '^model ' "$folder/$1" && break
        sleep 0.1
    done
    sed -n 's/^listening on \(http:[^,]*\).*/\1/p' "$folder/$1" | grep . || { cat "$folder/$1" >&2; exit 1; }
}
program=$1
serve first
first=$!
serve second --parallel 1
second=$!
a=$(url first)
b=$(url second)
"$program" bench serve --url "$a" --verify --requests "$2" --against "$b"
# The other way round: what many make at once also equals what the same server makes of one.
"$program" bench serve --url "$a" --verify --requests "$(($2 / 10))"
kill $first
wait $first
