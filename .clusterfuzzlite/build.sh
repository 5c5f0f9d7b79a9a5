#!/bin/bash
# Builds every fuzz target of the module for a fuzzing service: it finds them, so that none has to be
# listed. It changes the checkout, and is run in the image of the Dockerfile beside it.
#
# compile_native_go_fuzzer_v2 compiles the test files of a package into the package itself. Those of
# package x_test would not fit there, so they are moved into a package of their own first, and what
# export_test.go exports to them becomes part of the package.
set -euo pipefail

go list -f '{{.Dir}}' ./... | while read -r dir; do
	[ -z "$(go list -f '{{join .XTestGoFiles ""}}' "$dir")" ] && continue
	grep -qs '^func Fuzz' "$dir"/*_test.go || continue
	mkdir -p "$dir/fuzztargets"
	for file in "$dir"/export*_test.go; do
		[ ! -e "$file" ] || mv "$file" "${file%_test.go}.go"
	done
	for file in $(go list -f '{{join .XTestGoFiles " "}}' "$dir"); do
		sed 's/^package .*_test$/package fuzztargets/' "$dir/$file" >"$dir/fuzztargets/$file"
		rm "$dir/$file"
	done
	[ ! -d "$dir/testdata" ] || cp -r "$dir/testdata" "$dir/fuzztargets/"
done

for package in $(go list ./...); do
	dir=$(go list -f '{{.Dir}}' "$package")
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go 2>/dev/null); do
		compile_native_go_fuzzer_v2 "$package" "$target" "$(tr -c 'A-Za-z0-9\n' _ <<<"${package#*/*/*/}")_$target"
	done
done
