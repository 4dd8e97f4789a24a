#!/bin/sh
# run.sh SOURCES FRONT PROGRAM: two replicas of PROGRAM with FRONT (nginx or haproxy) in front of them.
set -e
PATH=$PATH:/usr/sbin
for need in node "$2"; do
  command -v "$need" > /dev/null || { echo "not run with $2: $need is missing"; exit 0; }
done
FORESAY_FRONT=$2 FORESAY_PROGRAM=$3 FORESAY_DEPLOY=$1/../../examples/deploy exec node --test "$1/replicas.test.mjs"
