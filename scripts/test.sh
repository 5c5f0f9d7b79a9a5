#!/usr/bin/env bash
# Runs the tests of make test, or go test with the arguments that are given. It fails as well if a
# test was skipped, and names those that took more than 20 s.
#
# PACKAGES narrows what make test runs. RACE= leaves the race detector out of what is given, and DIR=
# names the folder of another module in which it runs.
set -euo pipefail
cd "$(dirname "$0")/.."

# Caddy keeps its configuration and certificates in these; go keeps its own
# settings there too, and has to go on finding them.
GOENV=$(go env GOENV)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# A program with the race detector sleeps for a second before it ends.
export GORACE=atexit_sleep_ms=0
export GOENV XDG_CONFIG_HOME="$tmp/config" XDG_DATA_HOME="$tmp/data"
gotestsum=$(GOFLAGS= go -C tools tool -n gotestsum)

run() {
	local events status=0
	events=$(mktemp "$tmp/events.XXXX")
	"$gotestsum" --format standard-quiet --format-hide-empty-pkg --jsonfile "$events" \
		--post-run-command 'bash -c "if ((TESTS_SKIPPED)); then echo a skipped test proves nothing; exit 1; fi"' \
		-- -shuffle=on -timeout 40m -p 1 "$@" || status=1
	"$gotestsum" tool slowest --threshold 20s --jsonfile "$events"
	return $status
}

if [ $# -gt 0 ]; then
	cd "${DIR:-.}"
	run ${RACE--race} "$@"
	exit
fi

# Three jobs run side by side, one package at a time each: tests of whole Caddys wait most of their
# time. A job prints its output when it has ended.
status=0 running=0
job() {
	if ((running == 3)); then
		wait -n || status=1
		running=$((running - 1))
	fi
	{ run "$@" >"$tmp/job.$BASHPID" 2>&1 && local ok=0 || local ok=1; cat "$tmp/job.$BASHPID"; exit $ok; } &
	running=$((running + 1))
}

# Packages that watch the clock, or wait for Caddys most of their time, are left out: make test-faults runs them alone.
module=$(go list -m)
mapfile -t packages < <(go list ${PACKAGES:-./...} | grep -vxF "$(sed "s|^|$module/|" scripts/alone)")
# among prints those of the packages that are named, in this order.
among() { for name; do printf '%s\n' "${packages[@]}" | grep -xF "$module${name:+/$name}" || true; done; }

# The tests of the engine in which no goroutine meets another run without the race detector, which
# makes them three to ten times as slow and has nothing to find. scripts/single names them; all
# others run with it, and so do a few walks. On Redis, a fifth of the random tests runs: make
# test-long runs all.
mapfile -t redis < <(among window/redis)
mapfile -t local < <(among window window/memory)
single="^Test($(paste -sd '|' scripts/single))\$"

# So do these, of one goroutine and long: they read a hundred megabytes, change thousands of scripts, or count hundreds of
# thousands of keys or requests. They have to be in the packages that come next.
long='^Test(MemoryIsFlat|EnforcedShare|Zipf|Distinct|LoadBeforeABackEnd|KnownMixes|FoldTimes|Dominates|MarkDecidesAsOn|RetryingProlongsNoBan|FloodOfStrikes|TiersAreThreeZones|Scripts|Schedules)$'
mapfile -t ofLong < <(among internal/usage internal/enforce internal/observe/toptalkers internal/observe/alert internal/tests/handlertest \
	internal/lint internal/replay/suggest internal/replay/series internal/bans internal/tests/mutants window/redis/internal/totals)

# The longest come first.
own=('' internal/tests/e2e internal/tests/handlertest)
mapfile -t others < <(printf '%s\n' "${packages[@]}" | grep -vxF "$(among "${own[@]}" window/redis window window/memory)")
for package in $(among internal/tests/e2e); do job -race "$package"; done
if ((${#redis[@]})); then
	job -race -skip "$single" "${redis[@]}" -windowtest.part 2
	job -run "^TestAgrees|$single" "${redis[@]}" -windowtest.part 20
fi
if ((${#others[@]})); then job -race -skip "$long" "${others[@]}"; fi
for package in $(among internal/tests/handlertest ''); do job -race -skip "$long" "$package"; done
if ((${#local[@]})); then
	job -race -skip "$single" "${local[@]}"
	job -run "$single" "${local[@]}"
fi
if ((${#ofLong[@]})); then job -run "$long" "${ofLong[@]}"; fi
while ((running)); do
	wait -n || status=1
	running=$((running - 1))
done
exit $status
