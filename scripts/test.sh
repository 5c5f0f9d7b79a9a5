#!/usr/bin/env bash
# Runs go test with the race detector on the given packages (default: all). It
# prints what plain go test would, and fails as well if any test was skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

# Caddy keeps its configuration and certificates in these; go keeps its own
# settings there too, and has to go on finding them.
GOENV=$(go env GOENV)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export GOENV XDG_CONFIG_HOME="$tmp/config" XDG_DATA_HOME="$tmp/data"

if [ $# -eq 0 ]; then
	set -- ./...
fi

# One package at a time: some tests watch the clock.
go test -json -race -shuffle=on -timeout 40m -p 1 "$@" | awk -f scripts/test.awk
