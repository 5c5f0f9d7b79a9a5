package redis

import (
	"context"
	"errors"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// decideApart answers requests in one round trip to each node of a Cluster: every
// charge is a call of its own, and another under each further name, for its keys may
// be anywhere.
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
	for i, charges := range requests {
		own := calls[:len(charges)*len(s.namings)]
		calls = calls[len(own):]
		results[i] = s.assemble(ctx, op, own)
	}
	return results
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

// assemble puts the answers of one request's calls together. Where only some failed,
// what the others charged may not have been given back.
func (s *Store) assemble(ctx context.Context, op string, calls []*call) window.Result {
	answers := make([]window.Result, len(calls))
	var err error
	allowed, charged := true, false
	for i, c := range calls {
		charged = charged || !uncharged(c.err)
		c.answer(answers[i : i+1])
		if err == nil {
			err = s.fail(ctx, answers[i].Err)
		}
		allowed = allowed && window.Allowed(answers[i].Decisions)
	}
	if op == "take" && len(calls) > 1 && (err != nil || !allowed) {
		s.giveBack(ctx, calls, answers, err != nil)
	}
	if err != nil && charged && !errors.Is(err, window.ErrUnknown) {
		err = unknown{err}
	}
	if err != nil {
		return window.Result{Err: err}
	}
	var all []window.Decision
	for i := 0; i < len(answers); i += len(s.namings) {
		own := answers[i].Decisions
		for _, other := range answers[i+1 : i+len(s.namings)] {
			for j := range own {
				tighten(&own[j], &other.Decisions[j])
			}
		}
		all = append(all, own...)
	}
	return window.Result{Decisions: all}
}

// giveBack undoes those charges of a request that were made, because another was
// denied. The decisions then tell what is left again. If another failed, they are
// undone in a while.
func (s *Store) giveBack(ctx context.Context, calls []*call, answers []window.Result, failed bool) {
	var back []*call
	for i, c := range calls {
		own, cost := answers[i].Decisions, c.requests[0][0].Cost
		if own == nil || !window.Allowed(own) || cost == 0 {
			continue
		}
		back = append(back, s.newScriptCall(c.namings, "settle", c.requests, own[0].At, -cost))
		for j := range own {
			own[j].Remaining += cost
		}
	}
	if !failed {
		s.run(ctx, back)
	} else { // nobody waits for what is left, and there may be no time
		for _, c := range back {
			c.err = errLater
		}
	}
	for _, c := range back {
		s.denials.forget(&c.requests[0][0])
	}
	s.giveBackLater(back)
}
