package redis

import (
	"context"
	"errors"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// batchCharges is how many charges a run of the script decides on at most, for it
// to keep others waiting for about 1 ms and no longer.
const batchCharges = 128

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
	first, charges := 0, 0
	script := func(end int) {
		if first < end {
			c := s.newScriptCall(op, requests[first:end])
			c.first = first
			calls = append(calls, c)
		}
		first, charges = end, 0
	}
	for i, r := range requests {
		if native(r) != window.NativeOff {
			script(i)
			c := s.newNativeCall(op, r)
			c.first, first = i, i+1
			calls = append(calls, c)
			continue
		}
		if charges > 0 && charges+len(r) > batchCharges {
			script(i)
		}
		charges += len(r)
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
