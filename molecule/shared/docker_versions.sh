#!/bin/sh
# One JSON object per docker package that the node's archive has, in its newest version; leaves nothing behind.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/partial"
chmod -R a+rx "$scratch"
with() { "$@" -o Dir::State::lists="$scratch" -o Dir::Cache::pkgcache="" -o Dir::Cache::srcpkgcache=""; }
with apt-get -qq -o Acquire::Languages=none update >&2
with apt-cache madison docker.io docker-cli |
    awk -F ' *[|] *' '{ gsub(/ /, "", $1) } !seen[$1]++ { printf "{\"name\": \"%s\", \"version\": \"%s\"}\n", $1, $2 }'
