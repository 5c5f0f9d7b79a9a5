// Package soak runs two Caddys on one Redis for a long time, with faults at random,
// and sees every admission. make soak takes ten minutes, and reports; make test-faults a
// fraction of one.
package soak
