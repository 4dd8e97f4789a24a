#!/bin/sh
# run.sh SOURCES WHAT PROGRAM: load.test.mjs with PROGRAM, or two replicas of it with WHAT (nginx or haproxy) in front.
set -e
PATH=$PATH:/usr/sbin
test=replicas.test.mjs
[ "$2" != load ] || test=load.test.mjs
for need in node $([ "$2" = load ] || echo "$2"); do
  command -v "$need" > /dev/null || { echo "not run with $2: $need is missing"; exit 0; }
done
FORESAY_FRONT=$2 FORESAY_PROGRAM=$3 FORESAY_DEPLOY=$1/../../examples/deploy exec node --test "$1/$test"
