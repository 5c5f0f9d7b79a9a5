package redis

import (
	"context"
	"errors"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// decideApart answers requests in one round trip to each node of a Cluster: every
// charge is a call of its own, for its key may be anywhere.
func (s *Store) decideApart(ctx context.Context, op string, requests [][]window.Charge) []window.Result {
	var calls []*call
	for _, charges := range requests {
		for i := range charges {
			calls = append(calls, s.newCall(op, charges[i:i+1]))
		}
	}
	s.run(ctx, calls)
	results := make([]window.Result, len(requests))
	for i, charges := range requests {
		own := calls[:len(charges)]
		calls = calls[len(charges):]
		results[i] = s.assemble(ctx, own)
		if op == "take" && len(own) > 1 {
			s.giveBack(ctx, charges, own, results[i])
		}
	}
	return results
}

// assemble puts the answers of one request's calls together. Where only some failed,
// what the others charged may not have been given back.
func (s *Store) assemble(ctx context.Context, calls []*call) window.Result {
	var all window.Result
	charged := false
	for _, c := range calls {
		charged = charged || !uncharged(c.err)
		var one [1]window.Result
		c.answer(one[:])
		if one[0].Err != nil && all.Err == nil {
			all = window.Result{Err: s.fail(ctx, one[0].Err)}
		}
		if all.Err == nil {
			all.Decisions = append(all.Decisions, one[0].Decisions...)
		}
	}
	if all.Err != nil && charged && !errors.Is(all.Err, window.ErrUnknown) {
		all.Err = unknown{all.Err}
	}
	return all
}

// giveBack undoes the charges of a request of which another charge was denied or
// failed. The decisions then tell what is left again.
func (s *Store) giveBack(ctx context.Context, charges []window.Charge, calls []*call, r window.Result) {
	if r.Err == nil && window.Allowed(r.Decisions) {
		return
	}
	var back []*call
	next := 0
	for i, c := range calls {
		policies := len(charges[i].Policies)
		var own []window.Decision
		if r.Err == nil {
			own = r.Decisions[next : next+policies]
			next += policies
		} else if c.err == nil {
			var one [1]window.Result
			c.answer(one[:])
			own = one[0].Decisions
		}
		if own == nil || !window.Allowed(own) || charges[i].Cost == 0 {
			continue
		}
		back = append(back, s.newSettleCall(charges[i], own[0].At, -charges[i].Cost))
		for j := range own {
			own[j].Remaining += charges[i].Cost
		}
	}
	s.run(ctx, back)
	for _, c := range back {
		s.denials.forget(&c.requests[0][0])
	}
}
