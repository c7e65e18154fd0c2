#!/bin/sh
# Builds the site in dist: any build would do.
set -eu
mkdir -p dist
sed "s/@YEAR@/$(date +%Y)/" pages/index.html >dist/index.html
