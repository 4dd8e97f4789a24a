#!/bin/sh
# plots_test.sh FOLDER: the plots of FOLDER are fresh, and a stale, a missing and an unlisted one would be noticed.
# Exit status 77 means not run.
set -eu
command -v python3 >/dev/null || { echo "not run: python3 is not installed"; exit 77; }
python3 "$1/plot.py" --check

copy=$(mktemp -d)
trap 'rm -rf -- "$copy"' EXIT
expect_failure() {
    if python3 "$copy/plots/plot.py" --check >"$copy/said" 2>&1; then
        echo "not noticed: $1"
        exit 1
    fi
    grep -qF -- "$2" "$copy/said" || { echo "$1 was answered with:"; cat "$copy/said"; exit 1; }
}
fresh() {
    rm -rf -- "$copy/plots"
    cp -r -- "$1" "$copy/plots"
    cp -- "$1/../performance.md" "$copy/performance.md"
}
fresh "$1"
sed -i 's/"value": 710,/"value": 713,/' "$copy/plots/decode.json"
expect_failure "a changed number" "decode.svg is not what decode.json gives"
expect_failure "a number without a table" "decode.json plots 713, which does not stand in docs/performance.md"
fresh "$1"
rm -- "$copy/plots/rows.svg"
expect_failure "a missing picture" "rows.svg is not what rows.json gives"
fresh "$1"
rm -- "$copy/plots/rows.json"
expect_failure "a picture without numbers" "rows.svg has no JSON"
