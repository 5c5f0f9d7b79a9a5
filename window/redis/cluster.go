package redis

import (
	"context"
	"errors"
	"math"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// decideApart answers requests in one round trip to each node of a Cluster: every
// charge is a call of its own, and another under each further name, for its keys may
// be anywhere. A second one gives back what denied requests were charged.
func (s *Store) decideApart(ctx context.Context, op string, requests [][]window.Charge) []window.Result {
	var calls []*call
	for _, charges := range requests {
		for i := range charges {
			for k := range s.namings {
				calls = append(calls, s.newCall(s.namings[k:k+1], op, charges[i:i+1]))
			}
		}
	}
	s.run(ctx, calls)
	results := make([]window.Result, len(requests))
	var back []*call
	for i, charges := range requests {
		own := calls[:len(charges)*len(s.namings)]
		calls = calls[len(own):]
		var undo []*call
		results[i], undo = s.assemble(ctx, op, own)
		back = append(back, undo...)
	}
	s.giveBack(ctx, back)
	return results
}

// takeSuspect decides on a request of which one charge will probably be denied: that is made
// first, while the others are only looked at, so that they are not charged for a request that
// does not pass. It takes two round trips if the request passes; where the timeout has no room
// for them, all charges are made at the same time.
func (s *Store) takeSuspect(ctx context.Context, charges []window.Charge, suspect int) window.Result {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if !s.HasTimeFor(ctx, 2) {
		return s.take(ctx, charges, nil)
	}
	var calls, rest []*call
	for i := range charges {
		op := "peek"
		if i == suspect {
			op = "take"
		}
		for k := range s.namings {
			calls = append(calls, s.newCall(s.namings[k:k+1], op, charges[i:i+1]))
		}
	}
	s.run(ctx, calls)
	r, undo := s.assemble(ctx, "take", calls)
	if r.Err == nil && window.Allowed(r.Decisions) {
		for i, c := range calls {
			if c.op == "peek" {
				calls[i] = s.newCall(c.namings, "take", c.requests[0])
				rest = append(rest, calls[i])
			}
		}
		s.run(ctx, rest)
		r, undo = s.assemble(ctx, "take", calls)
	}
	s.giveBack(ctx, undo)
	return r
}

// lookAgain has the client of a Cluster ask anew, off the path of requests, which node
// holds what, if a call got no answer: its node may be gone, and a replica in its
// place. No node says so to one who does not ask. While it gets answers, the client asks
// five times a second at most.
func (s *Store) lookAgain(ctx context.Context, calls []*call) {
	c, ok := s.client.(*goredis.ClusterClient)
	if !ok {
		return
	}
	for _, one := range calls {
		var reply goredis.Error
		if one.err != nil && (!errors.As(one.err, &reply) || goredis.IsClusterDownError(one.err)) {
			c.ReloadState(ctx)
			return
		}
	}
}

// assemble puts the answers of one request's calls together, and returns what gives
// back those charges that were made although the request does not pass.
func (s *Store) assemble(ctx context.Context, op string, calls []*call) (r window.Result, undo []*call) {
	answers := make([]window.Result, len(calls))
	allowed, charged := true, false
	var failed []string // nodes
	for i, c := range calls {
		c.answer(answers[i : i+1])
		switch err := answers[i].Err; {
		case c.op == "peek":
		case err != nil:
			charged = charged || !uncharged(err)
		default:
			charged = charged || window.Allowed(answers[i].Decisions)
		}
		if r.Err == nil {
			r.Err = s.fail(ctx, answers[i].Err)
		}
		if answers[i].Err != nil {
			node := ""
			if s.placed.Load() { // else the client would ask for it
				node = s.address(ctx, c.key)
			}
			if !slices.Contains(failed, node) {
				failed = append(failed, node)
			}
		}
		allowed = allowed && window.Allowed(answers[i].Decisions)
	}
	if op == "take" && len(calls) > 1 && (r.Err != nil || !allowed) {
		undo = s.undo(calls, answers, r.Err != nil)
	}
	if r.Err != nil {
		if charged && !errors.Is(r.Err, window.ErrUnknown) { // it may not be given back
			r.Err = unknown{r.Err}
		}
		r.Err = &engine.PartError{Parts: failed, Err: r.Err}
		return r, undo
	}
	for i := 0; i < len(answers); i += len(s.namings) {
		own := answers[i].Decisions
		for _, other := range answers[i+1 : i+len(s.namings)] {
			for j := range own {
				own[j].Former = behind(own[j].At, other.Decisions[j].At)
				tighten(&own[j], &other.Decisions[j])
			}
		}
		r.Decisions = append(r.Decisions, own...)
	}
	return r, undo
}

// behind returns by how many ms a time is later than at. Clocks that are weeks apart are no
// clocks: nothing is found at that time.
func behind(at, other int64) int32 {
	return int32(min(max(other-at, math.MinInt32), math.MaxInt32))
}

// undo returns calls that give back the charges of a request that were made, because
// another was denied. The decisions then tell what is left again. If another failed,
// the calls wait: nobody asks what is left, and there may be no time.
func (s *Store) undo(calls []*call, answers []window.Result, failed bool) (undo []*call) {
	for i, c := range calls {
		own, cost := answers[i].Decisions, c.requests[0][0].Cost
		if own == nil || !window.Allowed(own) || cost == 0 || c.op == "peek" {
			continue
		}
		back := s.newScriptCall(c.namings, "settle", c.requests, own[0].At, -cost)
		if failed {
			back.err = errLater
		}
		undo = append(undo, back)
		for j := range own {
			own[j].Remaining += cost
		}
	}
	return undo
}

// giveBack makes those calls that do not wait, all in one round trip, and has the rest
// made in a while.
func (s *Store) giveBack(ctx context.Context, undo []*call) {
	var now []*call
	for _, c := range undo {
		if c.err == nil && !s.HasTimeFor(ctx, 1) {
			c.err = errLater
		}
		if c.err == nil {
			now = append(now, c)
		}
	}
	s.run(ctx, now)
	for _, c := range undo {
		s.denials.forget(&c.requests[0][0])
	}
	s.giveBackLater(undo)
}
