package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// accuracy is how an algorithm did on one shape. What is right is judged by what
// the algorithm itself admitted before: a request is wrongly allowed if its
// trailing window then holds more than the limit, and wrongly denied if it would
// not have.
type accuracy struct {
	requests, allowed, denied     int
	wronglyAllowed, wronglyDenied int
	worst                         int // most admitted in any trailing window
}

func (a accuracy) wronglyAllowedShare() float64 { return share(a.wronglyAllowed, a.requests) }
func (a accuracy) wronglyDeniedShare() float64  { return share(a.wronglyDenied, a.requests) }
func (a accuracy) overshoot() float64           { return max(0, share(a.worst-limit, limit)) }

func share(part, all int) float64 { return 100 * float64(part) / float64(max(1, all)) }

var policy = []window.Policy{{Limit: limit, Window: length}}

// judge runs the arrivals through the algorithm's Go twin.
func judge(algorithm window.Algorithm, arrivals []arrival) accuracy {
	var now int64
	store := memory.New(memory.Options{Now: func() int64 { return now }, SweepInterval: -1})
	defer func() { _ = store.Close() }()
	admitted := make(map[int][]int64)
	var a accuracy
	for _, req := range arrivals {
		now = req.at
		ds, err := store.Take(context.Background(), []window.Charge{{
			Zone: "z", Key: strconv.Itoa(req.key), Policies: policy, Cost: 1, Algorithm: algorithm,
		}})
		if err != nil {
			panic(err) // the charge is the same every time
		}
		past := admitted[req.key]
		for len(past) > 0 && past[0] <= now-length.Milliseconds() {
			past = past[1:]
		}
		a.requests++
		room := len(past) < limit
		switch {
		case ds[0].Allowed:
			a.allowed++
			past = append(past, now)
			if !room {
				a.wronglyAllowed++
			}
		default:
			a.denied++
			if room {
				a.wronglyDenied++
			}
		}
		a.worst = max(a.worst, len(past))
		admitted[req.key] = past
	}
	return a
}

func inOrder(all []arrival) []arrival {
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) } //nolint:gosec // repeatable on purpose
