// Package promises holds what docs/compatibility.md promises to those who depend on a version: a list in testdata for each
// promise. Its tests fail when something of a list is gone, and say which promise that breaks.
//
// What is new is not promised yet, and no failure. To promise it, before a release, run
//
//	go test ./internal/tests/promises -add
//
// Never take a line out of a list without a line in CHANGELOG.md: the first comment of each list says what that costs.
package promises
