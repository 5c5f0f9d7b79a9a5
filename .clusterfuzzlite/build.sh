#!/bin/bash
# Builds every fuzz target of the module for a fuzzing service: it finds them, so that none has to be
# listed. It changes the checkout, and is run in the image of the Dockerfile beside it.
#
# compile_native_go_fuzzer_v2 compiles the test files of a package into the package itself. Those of
# package x_test would not fit there, so they are moved into a package of their own first, and what
# export_test.go exports to them becomes part of the package.
set -euo pipefail

go list -f '{{.Dir}} {{join .XTestGoFiles " "}}' ./... | while read -r dir tests; do
	[ -n "$tests" ] && grep -qs '^func Fuzz' "$dir"/*_test.go || continue
	mkdir -p "$dir/fuzztargets"
	for file in "$dir"/export*_test.go; do
		[ ! -e "$file" ] || mv "$file" "${file%_test.go}.go"
	done
	for file in $tests; do
		sed 's/^package .*_test$/package fuzztargets/' "$dir/$file" >"$dir/fuzztargets/$file"
		rm "$dir/$file"
	done
	[ ! -d "$dir/testdata" ] || cp -r "$dir/testdata" "$dir/fuzztargets/"
done

go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r package dir; do
	name=$(tr -c 'A-Za-z0-9\n' _ <<<"${package#*/*/*/}")
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go 2>/dev/null); do
		compile_native_go_fuzzer_v2 "$package" "$target" "${name}_$target" </dev/null
	done
done
