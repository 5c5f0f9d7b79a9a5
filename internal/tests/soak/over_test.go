package soak_test

import (
	"slices"
	"testing"
	"time"
)

// TestOver admits the limit in a window, and one more.
func TestOver(t *testing.T) {
	var all []admission
	for i := range 10 {
		at := time.Duration(i) * 100 * time.Millisecond
		all = append(all, admission{at, at + time.Millisecond})
	}
	if n := over(all, 5, 500*time.Millisecond); n != 0 {
		t.Errorf("%d over with one each 100 ms and 5 in 500 ms, want none", n)
	}
	more := append(slices.Clone(all), admission{450 * time.Millisecond, 455 * time.Millisecond})
	if n := over(more, 5, 500*time.Millisecond); n != 6 {
		t.Errorf("%d over with one more, want 6", n)
	}
	more = append(slices.Clone(all), admission{-time.Second, 455 * time.Millisecond}) // may have been decided long before
	if n := over(more, 5, 500*time.Millisecond); n != 0 {
		t.Errorf("%d over with one more that took long, want none", n)
	}
}
