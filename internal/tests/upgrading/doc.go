// Package upgrading replaces the Caddys of a fleet by those of another version while clients ask, sees every answer, and holds
// what docs/upgrading.md says of it.
//
// The fixture in testdata has what a build with the former format of counters left in Redis. Tests with the tag upgrading build
// former commits, for which they need the history of the repository: make test-upgrading.
package upgrading
