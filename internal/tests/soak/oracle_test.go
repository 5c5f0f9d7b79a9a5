package soak_test

import (
	"slices"
	"time"
)

// admission is when a request that passed was sent and when its answer was there, in
// time since the beginning. It was decided at some time between.
type admission struct{ sent, got time.Duration }

// over returns how many admissions found more than most in the window that ends with
// them, for certain: all of those were sent after it began.
func over(all []admission, most int, window time.Duration) int {
	slices.SortFunc(all, func(a, b admission) int { return int(a.got - b.got) })
	n := 0
	for i := range all {
		first := i
		for first > 0 && all[first-1].got > all[i].got-window {
			first--
		}
		inside := 0
		for _, a := range all[first : i+1] {
			if a.sent > all[i].got-window {
				inside++
			}
		}
		if inside > most {
			n++
		}
	}
	return n
}
