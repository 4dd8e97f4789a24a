#!/bin/sh
# run.sh SOURCES WHAT PROGRAM: load.test.mjs or slow_clients.test.mjs with PROGRAM, two replicas of it with WHAT (nginx
# or haproxy) in front, or PROGRAM with the TLS of WHAT in front (tls_caddy, tls_stunnel, tls_nginx or tls_haproxy).
set -e
PATH=$PATH:/usr/sbin
case $2 in
  load) test=$2.test.mjs needs= ;;
  slow_clients) test=$2.test.mjs needs=slowhttptest ;;
  tls_*) test=tls.test.mjs needs="${2#tls_} openssl" ;;
  *) test=replicas.test.mjs needs=$2 ;;
esac
for need in node $needs; do
  command -v "$need" > /dev/null || { echo "not run with $2: $need is missing"; exit 0; }
done
FORESAY_FRONT=${2#tls_} FORESAY_PROGRAM=$3 FORESAY_DEPLOY=$1/../../examples/deploy exec node --test "$1/$test"
