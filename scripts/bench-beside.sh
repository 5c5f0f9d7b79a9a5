#!/usr/bin/env bash
# Runs Go benchmarks ten times on this tree and on the commit of BASE, in turns, and prints what
# benchstat says. BENCH names the benchmarks; the default is the handler on the memory store.
set -euo pipefail
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'git worktree remove --force "$tmp/base"; rm -rf "$tmp"' EXIT
git worktree add --quiet --detach "$tmp/base" "${BASE:?BASE= names the commit to compare with}"
bench=${BENCH:-BenchmarkHandler/(without|memory|memory_zset|header_key)\$}
go -C "$tmp/base" test -c -o "$tmp/base.test" "${PACKAGE:-.}"
go test -c -o "$tmp/now.test" "${PACKAGE:-.}"
for _ in {1..10}; do
	for of in base now; do
		"$tmp/$of.test" -test.run '^$' -test.bench "$bench" -test.benchtime 0.4s -test.benchmem 2>/dev/null >>"$tmp/$of.txt"
	done
done
go tool -modfile=tools/go.mod benchstat "base=$tmp/base.txt" "now=$tmp/now.txt"
