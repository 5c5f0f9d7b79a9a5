#!/usr/bin/env bash
# Runs go test with the race detector on packages (default: those of make test). It fails as well
# if a test was skipped, and names those that took more than 20 s. RACE= leaves the detector out.
set -euo pipefail
cd "$(dirname "$0")/.."

# Caddy keeps its configuration and certificates in these; go keeps its own
# settings there too, and has to go on finding them.
GOENV=$(go env GOENV)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export GOENV XDG_CONFIG_HOME="$tmp/config" XDG_DATA_HOME="$tmp/data"

run() {
	local events status=0
	events=$(mktemp "$tmp/events.XXXX")
	go tool gotestsum --format standard-quiet --format-hide-empty-pkg --jsonfile "$events" \
		--post-run-command 'bash -c "if ((TESTS_SKIPPED)); then echo a skipped test proves nothing; exit 1; fi"' \
		-- ${RACE--race} -shuffle=on -timeout 40m -p 1 "$@" || status=1
	go tool gotestsum tool slowest --threshold 20s --jsonfile "$events"
	return $status
}

if [ $# -gt 0 ]; then
	run "$@"
	exit
fi

# The longest package runs beside all others, with a part of its random walks: make test-long has
# them all. Packages that watch the clock are left out: make test-faults runs them alone.
module=$(go list -m)
longest=$module/window/redis
mapfile -t others < <(go list ./... | grep -vxF "$(printf "$module/%s\n" window/redis $(cat scripts/alone))")

status=0
run "${others[@]}" >"$tmp/others" 2>&1 &
run "$longest" -windowtest.part 20 || status=1
wait $! || status=1
cat "$tmp/others"
exit $status
