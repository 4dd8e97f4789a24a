#!/bin/sh
# operations.sh SOURCES PROGRAM: what stands beside the server for those who operate it: Prometheus takes its metrics
# and its rules, the dashboard asks for metrics that exist, and the image has all that the program needs.
set -e
for need in promtool curl; do
  command -v $need > /dev/null || { echo "not run with operations: $need is missing"; exit 0; }
done
deploy=$1/../../examples/deploy
folder=$(mktemp -d)
trap 'kill $server 2> /dev/null; rm -rf "$folder"' EXIT
cp "$deploy/prometheus-rules.yml" "$1/rules.test.yml" "$folder"
(cd "$folder" && promtool check rules prometheus-rules.yml && promtool test rules rules.test.yml)

"$2" serve --listen 127.0.0.1:0 --context 512 > "$folder/log" 2>&1 &
server=$!
for _ in $(seq 600); do
  grep -q '^model ' "$folder/log" && break
  sleep 0.1
done
url=$(sed -n 's/^listening on \(http:[^,]*\).*/\1/p' "$folder/log")
curl -sf "$url/v1/completions" -d '{"prompt": "x = 1\n", "max_tokens": 40, "n": 2}' > /dev/null
curl -sf "$url/metrics?aliases=no" > "$folder/metrics"
promtool check metrics < "$folder/metrics"
names=$(cat "$deploy/prometheus-rules.yml" "$deploy/grafana-dashboard.json" | grep -o 'foresay_[a-z_]*' | sort -u)
[ "$(echo "$names" | wc -l)" -gt 15 ]
for name in $names; do
  case $name in foresay_rates | foresay_alerts) continue ;; esac
  grep -q "^# TYPE ${name%_bucket} " "$folder/metrics" || { echo "no such metric: $name"; exit 1; }
done

# The image is for the portable program, which runs in a folder that has nothing else.
portable=${FORESAY_PORTABLE:-$(dirname "$2")/../../portable/app/foresay}
if sh "$deploy/image.sh" "$2" "$folder/root" 2> "$folder/refused"; then
  portable=$2
else
  grep -q 'give the program of the preset portable' "$folder/refused"
  [ ! -e "$folder/root" ]
fi
if [ ! -x "$portable" ]; then
  echo "the image was not tried: the preset portable is not built"
  echo done
  exit 0
fi
sh "$deploy/image.sh" "$portable" "$folder/root"
if chroot "$folder/root" /usr/bin/foresay --version 2> "$folder/refused"; then
  cp -r "$1/../../configs" "$1/../../models" "$folder/root"
  chroot "$folder/root" /usr/bin/foresay serve /configs/python-coder.toml --dry-run \
    --set 'sampling.chain=["top_k"]'
elif grep -q 'Operation not permitted' "$folder/refused"; then
  echo "the image was not tried: chroot is not permitted here"
else
  cat "$folder/refused"
  exit 1
fi
echo done
