// Package soak runs two Caddys on one Redis, or on several, for a long time, with faults at random,
// and sees every admission. make soak takes ten minutes for each of two, and reports; make test-faults a
// fraction of one.
package soak
