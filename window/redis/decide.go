package redis

import (
	"context"
	"errors"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// batchWeight is what a run of the script decides on at most, for it to keep others
// waiting for about 1 ms and no longer.
const batchWeight = 128

// weightOf tells how long the script takes to decide on a request.
func (s *Store) weightOf(charges []window.Charge) int64 {
	var weight int64
	for i := range charges {
		weight += window.FactsOf(charges[i].Algorithm).Weight(&charges[i])
	}
	return weight * int64(len(s.namings))
}

// round holds what deciding on requests takes. It is used again for others.
type round struct {
	results []window.Result
	calls   []*call
	spare   []*call // of the script
}

// decide answers requests in one round trip. Each has charges, which make sense.
func (s *Store) decide(ctx context.Context, op string, requests [][]window.Charge) []window.Result {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.decideIn(ctx, new(round), op, requests)
}

// decideIn is decide until ctx ends. The results are good until r is used again.
func (s *Store) decideIn(ctx context.Context, r *round, op string, requests [][]window.Charge) []window.Result {
	if s.cluster {
		return s.decideApart(ctx, op, requests)
	}
	clear(r.results)
	r.results = slices.Grow(r.results[:0], len(requests))[:len(requests)]
	s.plan(r, op, requests)
	s.decideTogether(ctx, r.calls, r.results)
	var again []*call // alone, a request gets the server's own words
	for i, charges := range requests {
		if r.results[i].Err != nil && errors.Is(r.results[i].Err, errUndone) {
			c := s.newCall(s.namings, op, charges)
			c.first = i
			again = append(again, c)
		}
	}
	s.decideTogether(ctx, again, r.results)
	return r.results
}

// plan makes the calls that decide on the requests: one of the script for each group that
// may go together, and one of CL.THROTTLE for each request that it decides on.
func (s *Store) plan(r *round, op string, requests [][]window.Charge) {
	for _, c := range r.calls {
		if c.kept {
			r.spare = append(r.spare, c)
		}
	}
	r.calls = r.calls[:0]
	first, weight := 0, int64(0)
	for i, charges := range requests {
		own := s.weightOf(charges)
		apart := s.throttles(charges)
		if apart || weight > 0 && weight+own > batchWeight {
			s.planScript(r, op, requests, first, i)
			first, weight = i, 0
		}
		weight += own
		if apart {
			c := s.newNativeCall(op, charges)
			c.first = i
			r.calls = append(r.calls, c)
			first, weight = i+1, 0
		}
	}
	s.planScript(r, op, requests, first, len(requests))
}

// planScript makes the call about requests first to end, if there are any.
func (s *Store) planScript(r *round, op string, requests [][]window.Charge, first, end int) {
	if first == end {
		return
	}
	var c *call
	if last := len(r.spare) - 1; last >= 0 {
		c, r.spare = r.spare[last], r.spare[:last]
	} else {
		c = &call{namings: s.namings, kept: true}
	}
	s.writeCall(c, op, requests[first:end])
	c.first = first
	r.calls = append(r.calls, c)
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
