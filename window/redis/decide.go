package redis

import (
	"context"
	"errors"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// batchWeight is what a run of the script decides on at most, for it to keep others
// waiting for about 1 ms and no longer.
const batchWeight = 128

// weightOf tells how long the script takes to decide on a request: 1 is a charge of
// 1 with zset, some 8 µs.
func weightOf(charges []window.Charge) int64 {
	var weight int64
	for i := range charges {
		c := &charges[i]
		weight++
		switch a := c.Algorithm.(type) {
		case window.Zset:
			weight += min(c.Cost/8, batchWeight) // a member per unit
		case window.Stream:
			weight++
		case window.Slices:
			for _, p := range c.Policies {
				weight += min(int64(a.Most(p.Window))/3, batchWeight) // fields that are read
			}
		case window.Layers:
			weight += 5 * int64(len(c.Policies))
		}
	}
	return weight
}

// decide answers requests in one round trip. Each has charges, which make sense.
func (s *Store) decide(ctx context.Context, op string, requests [][]window.Charge) []window.Result {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.cluster {
		return s.decideApart(ctx, op, requests)
	}
	results := make([]window.Result, len(requests))
	s.decideTogether(ctx, s.calls(op, requests), results)
	var again []*call // alone, a request gets the server's own words
	for i, charges := range requests {
		if errors.Is(results[i].Err, errUndone) {
			c := s.newCall(op, charges)
			c.first = i
			again = append(again, c)
		}
	}
	s.decideTogether(ctx, again, results)
	return results
}

// calls returns the calls that decide on the requests: one of the script for as
// many as may go together, and one of CL.THROTTLE for each that it decides on.
func (s *Store) calls(op string, requests [][]window.Charge) []*call {
	var calls []*call
	first, weight := 0, int64(0)
	script := func(end int) {
		if first < end {
			c := s.newScriptCall(op, requests[first:end])
			c.first = first
			calls = append(calls, c)
		}
		first, weight = end, 0
	}
	for i, r := range requests {
		if native(r) != window.NativeOff {
			script(i)
			c := s.newNativeCall(op, r)
			c.first, first = i, i+1
			calls = append(calls, c)
			continue
		}
		own := weightOf(r)
		if weight > 0 && weight+own > batchWeight {
			script(i)
		}
		weight += own
	}
	script(len(requests))
	return calls
}

// decideTogether makes the calls, and writes the results of their requests.
func (s *Store) decideTogether(ctx context.Context, calls []*call, results []window.Result) {
	s.run(ctx, calls)
	for _, c := range calls {
		own := results[c.first : c.first+len(c.requests)]
		c.answer(own)
		for i := range own {
			own[i].Err = s.fail(ctx, own[i].Err)
		}
	}
}
