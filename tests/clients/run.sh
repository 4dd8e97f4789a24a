#!/bin/sh
# run.sh SOURCES PROGRAM TEST: runs a test of SOURCES in the current folder, where `npm ci` has put the clients.
# FORESAY_INSTALL_CLIENTS=1 runs that first.
set -e
command -v node > /dev/null || { echo "not run with clients: node is missing"; exit 0; }
if [ "$3" = page.test.mjs ]; then
  FORESAY_BROWSER=${FORESAY_BROWSER:-$(command -v chromium || command -v google-chrome || true)}
  [ -n "$FORESAY_BROWSER" ] || { echo "not run with clients: a browser is missing; Debian's chromium is one"; exit 0; }
  export FORESAY_BROWSER FORESAY_PAGE=$1/../../server/page
fi
if [ "$FORESAY_INSTALL_CLIENTS" = 1 ] && [ ! -d node_modules/playwright-core ]; then npm ci --ignore-scripts; fi
[ -d node_modules/playwright-core ] || {
  echo "not run with clients: they are not installed; 'npm ci' in $PWD does it"
  exit 0
}
cp "$1"/*.mjs .
FORESAY_PROGRAM=$2 exec node --test "$3"
