// Package faults holds no code but tests: what happens to requests, counters, logs
// and metrics while Redis, the network or a clock fails, and after it. It runs Caddy
// as a process of its own with real servers. docs/reliability.md lists the faults,
// with the tests of each.
package faults
