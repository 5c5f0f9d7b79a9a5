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

run() { go test -json -race -shuffle=on -timeout 40m -p 1 "$@" | awk -f scripts/test.awk; }

if [ $# -gt 0 ]; then
	run "$@"
	exit
fi

# Packages whose tests watch the clock run one at a time, and alone. The longest package runs
# beside all others.
module=$(go list -m)
longest=$module/window/redis
alone=("$module/internal/faults" "$module/internal/soak" "$module/internal/traffic" "$module/window/fallback")
mapfile -t others < <(go list ./... | grep -vxF "$(printf '%s\n' "$longest" "${alone[@]}")")

status=0
run "${others[@]}" >"$tmp/others" 2>&1 &
run "$longest" || status=1
wait $! || status=1
cat "$tmp/others"
run "${alone[@]}" || status=1
exit $status
