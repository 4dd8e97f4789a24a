#!/bin/sh
# mpirun_test.sh PROGRAM LIBRARY: two processes started by Open MPI's mpirun, connected by LIBRARY in place of NCCL,
# give the text of one. Exit status 77 means not run.
set -eu
command -v mpirun > /dev/null || { echo "not run: mpirun is not installed"; exit 77; }
mpirun --version 2> /dev/null | grep -q "Open MPI" || { echo "not run: mpirun is not Open MPI's"; exit 77; }
home=$(mktemp -d)
trap 'rm -rf -- "$home"' EXIT
export HOME="$home" XDG_CONFIG_HOME="$home" XDG_CONFIG_DIRS="$home" XDG_STATE_HOME="$home"
export FORESAY_NCCL="$2" FORESAY_HOST_WAIT=50
# A port of this test's own.
export MASTER_PORT=$((20000 + $$ % 30000))
program=$1
complete() {
  "$@" complete -p 'def add(a, b):' -n 32 --temperature 0.8 --seed 5 --device cpu --threads 1 $layers
}
layers=
expected=$(complete "$program")
layers="--set runtime.host_layers=[5,7]"
set -- mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2
# The key's value has a blank nowhere, so that it stays one word.
got=$(complete "$@" "$program")
[ -n "$expected" ] || { echo "one process writes nothing"; exit 1; }
[ "$got" = "$expected" ] || { echo "two processes write:"; echo "$got"; echo "and one:"; echo "$expected"; exit 1; }
