package redis

import (
	"context"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/leases"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// Take implements window.Store. A request that was denied is denied again without the
// server, until a limit has room or a second has passed. A request whose charge has a lease
// passes without the server while the lease has units left.
//
// Cancelling ctx may not interrupt a call that was already sent: Take then returns when the
// server answers or the timeout expires.
func (s *Store) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return s.TakeInto(ctx, nil, charges)
}

// TakeInto is Take that may write the decisions into room, to save memory.
func (s *Store) TakeInto(ctx context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	if err := engine.CheckCharges(charges); err != nil || len(charges) == 0 {
		return nil, err
	}
	var end time.Time // of all calls together, if there are several
	if err := s.awaitTotals(ctx, &end, charges); err != nil {
		return nil, err
	}
	var leased *leases.Holder
	if len(charges) == 1 && charges[0].Lease.Units > 0 {
		leased = s.leases.Holder(&charges[0])
	}
	if leased != nil {
		var ds []window.Decision
		var err error
		if ds, end, err = s.leases.Take(ctx, leased, &charges[0], room); err != nil {
			s.doubt(charges)
		}
		if ds != nil || err != nil {
			return ds, err
		}
	}
	if s.gate != nil && len(charges) > 1 {
		return s.takeInTurn(ctx, charges, room)
	}
	asked := s.denials.Ask()
	if decisions := s.denials.Answer(asked, charges, room); decisions != nil {
		return decisions, nil
	}
	if s.leases.Owes(charges) {
		if err := s.leases.Repay(ctx, &end, charges...); err != nil {
			s.doubt(charges)
			return nil, err
		}
	}
	if !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	r := s.take(ctx, charges, room)
	if r.Err != nil {
		s.doubt(charges)
	}
	s.denials.Remember(asked, charges, r.Decisions)
	if leased != nil {
		leased.Answered(r.Decisions)
	}
	return r.Decisions, r.Err
}

// TakeBatch implements window.Store: one round trip for all requests that are not
// denied as in Take.
func (s *Store) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	asked := s.denials.Ask()
	results := make([]window.Result, len(requests))
	var rest [][]window.Charge
	var places []int  // of the rest among all
	var end time.Time // of the wait for totals
	for i, charges := range requests {
		results[i].Err = engine.CheckCharges(charges)
		if results[i].Err != nil || len(charges) == 0 {
			continue
		}
		if results[i].Err = s.awaitTotals(ctx, &end, charges); results[i].Err != nil {
			continue
		}
		if results[i].Decisions = s.denials.Answer(asked, charges, nil); results[i].Decisions != nil {
			continue
		}
		if s.leases.Owes(charges) {
			if results[i].Err = s.leases.Repay(ctx, new(time.Time), charges...); results[i].Err != nil {
				continue
			}
		}
		rest, places = append(rest, charges), append(places, i)
	}
	for i, r := range s.decide(ctx, wire.Take, rest) {
		s.denials.Remember(asked, rest[i], r.Decisions)
		results[places[i]] = r
	}
	return results
}

// Peek implements window.Store. It asks the server, whatever is remembered or leased.
func (s *Store) Peek(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	if err := engine.CheckCharges(charges); err != nil || len(charges) == 0 {
		return nil, err
	}
	if s.leases.Owes(charges) {
		if err := s.leases.Repay(ctx, new(time.Time), charges...); err != nil {
			return nil, err
		}
	}
	r := s.decide(ctx, wire.Peek, [][]window.Charge{charges})[0]
	return r.Decisions, r.Err
}

// Reset implements window.Store.
func (s *Store) Reset(ctx context.Context, charge window.Charge) error {
	if err := engine.CheckReset(charge); err != nil {
		return err
	}
	s.leases.Forget(&charge)
	defer s.denials.Forget(&charge)
	if engine.IsHeld(&charge) {
		defer s.totals.Tell(&charge)
	}
	var calls []*wire.Call
	for i := range s.namings {
		one := s.namings[i : i+1]
		calls = append(calls, s.writer.Script(one, wire.Reset, [][]window.Charge{{charge}}))
		if engine.IsNative(&charge) {
			calls = append(calls, s.writer.ThrottleReset(one, charge))
		}
	}
	return s.all(ctx, calls)
}

// AnswerLocally implements engine.LocalAnswerer: units of a lease and remembered denials decide without
// the server.
func (s engineStore) AnswerLocally(charges []window.Charge) ([]window.Decision, engine.Source) {
	if engine.CheckCharges(charges) != nil || len(charges) == 0 {
		return nil, engine.SourceStore
	}
	if len(charges) == 1 && charges[0].Lease.Units > 0 {
		if ds := s.leases.AnswerLocally(&charges[0]); ds != nil {
			return ds, engine.SourceLease
		}
	}
	if ds := s.denials.Answer(s.denials.Ask(), charges, nil); ds != nil {
		return ds, engine.SourceRemembered
	}
	return nil, engine.SourceStore
}
