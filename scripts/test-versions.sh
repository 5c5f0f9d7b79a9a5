#!/usr/bin/env bash
# Tests with other versions than those of go.mod, with which make test runs: the newest Caddy and Redis client, the oldest
# Go, platforms of 32 bits, and other plugins in the same program.
set -euo pipefail
cd "$(dirname "$0")/.."
missing=()

echo "== newest.mod"
go vet -modfile=newest.mod ./...
newest() { GOFLAGS="${GOFLAGS:-} -modfile=$PWD/newest.mod" RACE= scripts/test.sh "$@"; }
newest . ./internal/caddyapi ./internal/config/template ./internal/observe/page ./stores
newest -run '^Test(Conformance|Connect|Permissions|TLS|Together.*)$' ./window/redis -windowtest.part 5
newest -run '^Test(Adapt|LLM|Known.*|Placed.*|PathsTakenOff|WhoMayDoWhat|ZoneSees.*)$' ./internal/tests/e2e

# The newest patch of the oldest Go: the first ones had bugs.
oldest=go1.25.14
echo "== $oldest"
if GOTOOLCHAIN=$oldest go version; then
	GOTOOLCHAIN=$oldest go build -o /dev/null ./cmd/caddy
	GOTOOLCHAIN=$oldest go test -vet=off ./window/httplimit ./lua/... ./internal/breaker ./internal/owed ./internal/caddyapi ./internal/config/...
else
	missing+=("$oldest cannot be had here: NOTHING WAS TESTED WITH IT")
fi

# A platform that was never built here takes minutes: Caddy is compiled for it. These have words of 32 bits, and another system.
platforms=${PLATFORMS:-linux/386 linux/arm windows/amd64}
if [ "$platforms" = all ]; then platforms="$(echo {linux,darwin,windows,freebsd}/{amd64,arm64}) linux/386 linux/arm"; fi
for platform in $platforms; do
	echo "== $platform"
	GOOS=${platform%/*} GOARCH=${platform#*/} GOARM=7 CGO_ENABLED=0 go build -o /dev/null ./cmd/caddy
done
echo "== tests for linux/386"
export GOARCH=386 CGO_ENABLED=0
go test ./window/httplimit ./lua/... ./internal/breaker ./internal/owed ./internal/fallback ./window/redis/internal/...
go test -run '^Test(Log|Layers|Slices|GCRA|Limiter).*' ./window
go test -run '^Test(Conformance|Log.*)$' ./window/memory -windowtest.part 2
unset GOARCH CGO_ENABLED

echo "== other plugins"
go -C internal/tests/neighbours vet ./...
go -C internal/tests/neighbours test -count 1 ./...

for text in "${missing[@]}"; do
	echo "WARNING: $text" >&2
done
