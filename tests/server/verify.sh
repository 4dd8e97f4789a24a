#!/bin/sh
# verify.sh PROGRAM COUNT: the same bytes over HTTP. COUNT requests of all protocols at 64 connections, some of whose
# clients leave; each answer equals, in all that it says, that of a fresh server which gets the requests one after the
# other, streams where the other does not, drafts with another drafter or not at all, and does not use its cache.
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
serve first --batch-draft
first=$!
serve second --parallel 1
second=$!
a=$(url first)
b=$(url second)
verify() {  # a server without the plugin would have one thing less to compare
    "$program" bench serve --url "$a" --verify "$@" > "$folder/said"
    cat "$folder/said"
    grep -q 'plugins used' "$folder/said"
}
verify --requests "$2" --against "$b"
# The other way round: what many make at once also equals what the same server makes of one.
verify --requests "$(($2 / 10))"
# Both draft with the draft model, as far as that pays.
for server in "$a" "$b"; do
    curl -sf "$server/metrics" | grep -q '^foresay_speculation_drafted_tokens_total{.*source="draft"}' || {
        echo "no draft model drafts at $server" >&2
        exit 1
    }
done
kill $first
wait $first
