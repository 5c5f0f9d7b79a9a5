package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/gate"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// takeInTurn is Take for a request on several counters in a Cluster.
func (s *Store) takeInTurn(ctx context.Context, charges []window.Charge, room []window.Decision) ([]window.Decision, error) {
	var (
		buf     [8]uint64
		hashes  = s.gate.Hashes(buf[:0], charges)
		timer   *time.Timer // runs once the request has waited
		force   bool
		waited  *gate.CounterState
		turn    chan struct{}
		suspect int
	)
	for {
		asked := s.denials.Ask()
		if ds := s.denials.Answer(asked, charges, room); ds != nil {
			if waited != nil {
				s.gate.Pass(waited, turn)
			}
			return ds, nil
		}
		first, at, wait, busy := s.gate.Enter(asked.At, charges, hashes, force)
		if waited != nil && at != waited {
			s.gate.Pass(waited, turn)
		}
		if busy {
			return nil, s.busy()
		}
		if wait == nil {
			suspect = first
			break
		}
		waited, turn = at, wait
		if timer == nil {
			timer = time.NewTimer(min(s.timeout/2, max(0, s.timeout-s.rtt.Get()*9/8)))
			defer timer.Stop()
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.timeout) // of the wait and the call
			defer cancel()
		}
		select {
		case <-wait:
		case <-timer.C:
			force = true
		case <-ctx.Done():
			s.gate.Pass(at, wait)
			return nil, s.words.FailUncharged(ctx, ctx.Err())
		}
	}
	asked := s.denials.Ask()
	var r window.Result
	if suspect >= 0 {
		// A request that left just now may have been denied.
		if ds := s.denials.Answer(asked, charges, room); ds != nil {
			s.gate.Leave(asked.At, charges, hashes, nil)
			return ds, nil
		}
		r = s.takeSuspect(ctx, charges, suspect)
	} else {
		r = s.take(ctx, charges, room)
	}
	s.denials.Remember(asked, charges, r.Decisions)
	s.gate.Leave(asked.At, charges, hashes, r.Decisions)
	if r.Err != nil {
		s.doubt(charges)
	}
	return r.Decisions, r.Err
}

// decideApart answers requests in one round trip to each node of a Cluster: every
// charge is a call of its own, and another under each further name, for its keys may
// be anywhere. A second one gives back what denied requests were charged.
func (s *Store) decideApart(ctx context.Context, op wire.Op, requests [][]window.Charge) []window.Result {
	var calls []*wire.Call
	for _, charges := range requests {
		for i := range charges {
			for k := range s.namings {
				calls = append(calls, s.newCall(s.namings[k:k+1], op, charges[i:i+1]))
			}
		}
	}
	s.run(ctx, calls)
	results := make([]window.Result, len(requests))
	var back []*wire.Call
	for i, charges := range requests {
		own := calls[:len(charges)*len(s.namings)]
		calls = calls[len(own):]
		var undo []*wire.Call
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
	if !s.rtt.HasTimeFor(ctx, 2) {
		return s.take(ctx, charges, nil)
	}
	var calls, rest []*wire.Call
	for i := range charges {
		op := wire.Peek
		if i == suspect {
			op = wire.Take
		}
		for k := range s.namings {
			calls = append(calls, s.newCall(s.namings[k:k+1], op, charges[i:i+1]))
		}
	}
	s.run(ctx, calls)
	r, undo := s.assemble(ctx, wire.Take, calls)
	if r.Err == nil && window.Allowed(r.Decisions) {
		for i, c := range calls {
			if c.Op == wire.Peek {
				calls[i] = s.newCall(c.Names, wire.Take, c.Requests[0])
				rest = append(rest, calls[i])
			}
		}
		s.run(ctx, rest)
		r, undo = s.assemble(ctx, wire.Take, calls)
	}
	s.giveBack(ctx, undo)
	return r
}

// assemble puts the answers of one request's calls together, and returns what gives
// back those charges that were made although the request does not pass.
func (s *Store) assemble(ctx context.Context, op wire.Op, calls []*wire.Call) (r window.Result, undo []*wire.Call) {
	answers := make([]window.Result, len(calls))
	allowed, charged := true, false
	var failed []string // nodes
	for i, c := range calls {
		c.Answer(answers[i : i+1])
		s.answered(c, answers[i:i+1])
		switch err := answers[i].Err; {
		case c.Op == wire.Peek:
		case err != nil:
			charged = charged || !failure.Uncharged(err)
		default:
			charged = charged || window.Allowed(answers[i].Decisions)
		}
		if r.Err == nil {
			r.Err = s.words.Fail(ctx, answers[i].Err)
		}
		if answers[i].Err != nil {
			node := ""
			if s.placed.Load() { // else the client would ask for it
				node = s.address(ctx, c.Key)
			}
			if !slices.Contains(failed, node) {
				failed = append(failed, node)
			}
		}
		allowed = allowed && window.Allowed(answers[i].Decisions)
	}
	if op == wire.Take && len(calls) > 1 && (r.Err != nil || !allowed) {
		undo = s.undo(calls, answers, r.Err != nil)
	}
	if r.Err != nil {
		if charged && !errors.Is(r.Err, window.ErrUnknown) { // it may not be given back
			r.Err = failure.Unknown(r.Err)
		}
		r.Err = &engine.PartError{Parts: failed, Err: r.Err}
		return r, undo
	}
	for i := 0; i < len(answers); i += len(s.namings) {
		own := answers[i].Decisions
		for _, other := range answers[i+1 : i+len(s.namings)] {
			for j := range own {
				own[j].Former = behind(own[j].At, other.Decisions[j].At)
				wire.Tighten(&own[j], &other.Decisions[j])
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
// the calls wait: no caller asks what is left, and there may be no time.
func (s *Store) undo(calls []*wire.Call, answers []window.Result, failed bool) (undo []*wire.Call) {
	for i, c := range calls {
		own, cost := answers[i].Decisions, c.Requests[0][0].Cost
		if c.Op == wire.Take && engine.IsHeld(&c.Requests[0][0]) && &c.Names[0] != &s.namings[0] {
			if passed := own != nil && window.Allowed(own); passed || own == nil && !failure.Uncharged(answers[i].Err) {
				s.totals.GiveBack(&c.Requests[0][0], 0, false) // it may have passed under this name alone
			}
		}
		if own == nil || !window.Allowed(own) || cost == 0 || c.Op == wire.Peek {
			continue
		}
		for j := range own {
			own[j].Remaining += cost
		}
		if engine.IsHeld(&c.Requests[0][0]) {
			if &c.Names[0] == &s.namings[0] {
				s.giveUp(c.Requests[0], answers[i])
			}
			continue
		}
		back := s.writer.Script(c.Names, wire.Settle, c.Requests, own[0].At, -cost)
		if failed {
			back.Err = failure.ErrLater
		}
		undo = append(undo, back)
	}
	return undo
}

// giveBack makes those calls that do not wait, all in one round trip, and has the rest
// made in a while.
func (s *Store) giveBack(ctx context.Context, undo []*wire.Call) {
	var now []*wire.Call
	for _, c := range undo {
		if c.Err == nil && !s.rtt.HasTimeFor(ctx, 1) {
			c.Err = failure.ErrLater
		}
		if c.Err == nil {
			now = append(now, c)
		}
	}
	s.run(ctx, now)
	for _, c := range undo {
		s.denials.Forget(&c.Requests[0][0])
	}
	s.giveBackLater(undo)
}

// again is the time between two attempts to give back what a node did not take.
const again = 10 * time.Millisecond

// giveBackLater gives back units that are not back yet, for the timeout of the store
// from now on, unless a node may have heard of them: it would take back what others
// spent in the same millisecond. What stays charged is reported.
func (s *Store) giveBackLater(calls []*wire.Call) {
	if calls = s.unheard(calls); len(calls) == 0 {
		return
	}
	for _, c := range calls { // which outlive the request, whose caller may read its charges
		charge := c.Requests[0][0]
		charge.Key = strings.Clone(charge.Key)
		c.Requests = [][]window.Charge{{charge}}
	}
	if !s.givebacks.Run(func() { s.giveBackNow(calls) }) {
		s.stayCharged(calls)
	}
}

func (s *Store) giveBackNow(calls []*wire.Call) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	for {
		s.run(ctx, calls)
		for _, c := range calls {
			s.denials.Forget(&c.Requests[0][0])
		}
		if calls = s.unheard(calls); len(calls) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			s.stayCharged(calls)
			return
		case <-time.After(again):
		}
	}
}

// unheard returns the calls that have certainly not run, and reports the others that
// failed.
func (s *Store) unheard(calls []*wire.Call) []*wire.Call {
	var rest, failed []*wire.Call
	for _, c := range calls {
		switch {
		case c.Err == nil:
		case errors.Is(c.Err, failure.ErrLater), failure.Uncharged(c.Err):
			rest = append(rest, c)
		default:
			failed = append(failed, c)
		}
	}
	s.stayCharged(failed)
	return rest
}

// stayCharged reports units that were not given back.
func (s *Store) stayCharged(calls []*wire.Call) {
	for _, c := range calls {
		charge := &c.Requests[0][0]
		s.report(fmt.Errorf("zone %q: %d units of a request that did not pass stay charged: %w", charge.Zone, charge.Cost, s.words.Fail(context.Background(), c.Err)))
	}
}
