#!/bin/bash
# bench/serve.sh PROGRAM [LLAMA_SERVER]: what the server costs: `bench serve` with 1, 4, 8 and 16 clients against
# `bench batch` with as many sequences and `bench decode` with one, on the bundled pair, in one run on a quiet machine.
# With llama.cpp's server (built elsewhere), the same load on it. Also the processor time of 64 idle streams.
# Report the medians of three runs of this script, and the machine.
set -e
program=$1 llama=$2
here=$(cd "$(dirname "$0")" && pwd)
model=$here/../models/python-coder/target-q4_k_m.gguf
folder=$(mktemp -d)
trap 'kill $server $rival $idle 2> /dev/null; rm -rf "$folder"' EXIT
load="--clients 1,4,8,16 --in 200 --out 200 --temperature 0.6"
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

"$program" serve --listen 127.0.0.1:0 > "$folder/log" 2>&1 &
server=$!
until grep -q '^model ' "$folder/log"; do kill -0 $server || { cat "$folder/log" >&2; exit 1; }; sleep 0.1; done
url=$(sed -n 's/^listening on \(http:[^,]*\).*/\1/p' "$folder/log")
echo "== foresay serve"
"$program" bench serve --url "$url" $load
echo "== 64 connections that stay open and ask nothing: processor time of 10 s"
for _ in $(seq 64); do
  (exec 3<> "/dev/tcp/127.0.0.1/${url##*:}"; sleep 12) 2> /dev/null &
  idle="$idle $!"
done
sleep 1
before=$(ticks $server)
sleep 10
echo "$(($(ticks $server) - before)) ticks ($(getconf CLK_TCK) make a second)"
kill $idle 2> /dev/null || true
idle=
kill $server
wait $server || true

echo "== bench batch, the same engine without a server"
"$program" bench batch --sequences 1,4,8,16 --in 200 --out 200 --temperature 0.6
echo "== bench decode, one text"
"$program" bench decode -n 200

[ -n "$llama" ] || exit 0
"$llama" -m "$model" --port 18089 -np 16 -c 8192 > "$folder/rival" 2>&1 &
rival=$!
until curl -sf http://127.0.0.1:18089/health > /dev/null; do kill -0 $rival; sleep 0.2; done
echo "== llama-server"
"$program" bench serve --url http://127.0.0.1:18089 $load
