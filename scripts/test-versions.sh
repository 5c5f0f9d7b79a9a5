#!/usr/bin/env bash
# Tests what make test leaves out: the newest Caddy, the oldest Go, platforms of 32 bits, and other plugins in the same
# program. make test runs on the versions of go.mod, the oldest. It takes 5 minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
plain=(./window/... ./lua/... ./internal/fallback ./internal/owed ./internal/breaker ./internal/usage)

echo "== the newest Caddy and Redis client, of newest.mod"
go vet -modfile=newest.mod ./...
GOFLAGS=-modfile=$PWD/newest.mod RACE= scripts/test.sh . ./internal/config/... ./internal/dryrun ./internal/caddyapi ./stores
GOFLAGS=-modfile=$PWD/newest.mod RACE= scripts/test.sh -run '^Test(Conformance|Connect|Permissions|TLS|Together.*)$' ./window/redis -windowtest.part 5
GOFLAGS=-modfile=$PWD/newest.mod RACE= scripts/test.sh -run '^Test(Adapt|LLM|Known.*|Placed.*|PathsTakenOff|Story|WhoMayDoWhat|ZoneSees.*)$' ./internal/tests/e2e

oldest=go$(go list -m -f '{{.GoVersion}}')
oldest=${OLDEST_GO:-$oldest.0}
echo "== the oldest Go, $oldest, with the oldest Caddy"
if GOTOOLCHAIN=$oldest go version; then
	GOTOOLCHAIN=$oldest go build -o /dev/null ./cmd/caddy
	GOTOOLCHAIN=$oldest go test -vet=off -count 1 ./window/httplimit ./lua/... ./internal/breaker ./internal/owed ./internal/config/...
else
	echo "WARNING: $oldest cannot be had here: NOTHING WAS TESTED WITH IT" >&2
fi

echo "== platforms: the program without Caddy's modules, and the engine on 32 bits"
for platform in {linux,darwin,windows,freebsd}/{amd64,arm64} linux/386 linux/arm; do
	GOOS=${platform%/*} GOARCH=${platform#*/} GOARM=7 CGO_ENABLED=0 go build . ./stores ./window/... ./internal/...
done
export GOARCH=386 CGO_ENABLED=0
go test -count 1 -short "${plain[@]/window\/.../window/redis/internal/...}"
go test -count 1 ./window ./window/memory -run '^Test(Conformance|Log.*|Layers.*|Limiter.*|Decide.*)$' -windowtest.part 2
go test -count 1 ./window/redis -run '^Test(Conformance|AgreesWithMemory.*|Settle.*|Lease)$' -windowtest.part 2
