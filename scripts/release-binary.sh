#!/bin/sh
# Builds Caddy with this plugin into the file $1, an absolute path, as releases and the image have it: for GOOS
# and GOARCH, with the versions of newest.mod, and the same bytes in every folder. The tags are those of Caddy's own releases.
set -eu
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
exec go build -modfile=newest.mod -trimpath -buildvcs=true -tags nobadger,nomysql,nopgx -ldflags '-s -w' -o "$1" ./cmd/caddy
