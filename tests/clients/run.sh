#!/bin/sh
# run.sh SOURCES PROGRAM: runs the tests of SOURCES in the current folder, where `npm ci` has put the clients.
# FORESAY_INSTALL_CLIENTS=1 runs that first.
set -e
command -v node > /dev/null || { echo "not run with clients: node is missing"; exit 0; }
if [ "$FORESAY_INSTALL_CLIENTS" = 1 ] && [ ! -d node_modules ]; then npm ci --ignore-scripts; fi
[ -d node_modules ] || { echo "not run with clients: they are not installed; 'npm ci' in $PWD does it"; exit 0; }
cp "$1"/*.mjs .
FORESAY_PROGRAM=$2 exec node --test clients.test.mjs
