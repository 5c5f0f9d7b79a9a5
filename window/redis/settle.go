package redis

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/batch"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/leases"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// GiveBack implements window.Store.
func (s *Store) GiveBack(ctx context.Context, charge window.Charge, at, units int64) error {
	if err := engine.CheckUnits(charge, units); err != nil || units == 0 {
		return err
	}
	if engine.IsHeld(&charge) {
		s.totals.GiveBack(&charge, units, true)
		return nil
	}
	if charge.Lease.Units > 0 && s.leases.GiveBack(&charge, at, units) {
		return nil
	}
	defer s.denials.Forget(&charge)
	return s.all(ctx, s.newSettleCalls(wire.Settle, [][]window.Charge{{charge}}, at, -units))
}

// ChargeMore implements window.Store.
func (s *Store) ChargeMore(ctx context.Context, charge window.Charge, units int64) error {
	if err := engine.CheckUnits(charge, units); err != nil || units == 0 {
		return err
	}
	if engine.IsHeld(&charge) {
		s.totals.Add(&charge, units)
		return nil
	}
	if charge.Lease.Units > 0 {
		s.leases.EndOf(&charge)
	}
	return s.all(ctx, s.newSettleCalls(wire.Settle, [][]window.Charge{{charge}}, 0, units))
}

// newSettleCalls writes calls that settle, one in all unless the names of a counter
// may be on several nodes of a Cluster. Each request is one charge, and has two of
// the numbers: at and delta.
func (s *Store) newSettleCalls(op wire.Op, requests [][]window.Charge, numbers ...int64) []*wire.Call {
	if !s.cluster {
		return []*wire.Call{s.writer.Script(s.namings, op, requests, numbers...)}
	}
	var calls []*wire.Call
	for i := range s.namings {
		calls = append(calls, s.writer.Script(s.namings[i:i+1], op, requests, numbers...))
	}
	return calls
}

// SettleBatch implements engine.BatchSettler, in one round trip. One run of the script settles as
// much as one decides; in a Cluster each charge is a call of its own, for each of its names.
func (s engineStore) SettleBatch(ctx context.Context, all []engine.Settlement) []error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	errs := make([]error, len(all))
	var own []settlement
	for i := range all {
		if errs[i] = engine.CheckSettle(all[i].Charge, all[i].Delta); errs[i] == nil && all[i].Delta != 0 && engine.IsHeld(&all[i].Charge) {
			errs[i] = engine.Settle(ctx, s.Store, all[i].Charge, all[i].At, all[i].Delta)
		} else if errs[i] == nil && all[i].Delta != 0 {
			own = append(own, s.newSettlement(&all[i], &errs[i]))
		}
	}
	if s.cluster {
		s.settleApart(ctx, own)
	} else {
		s.settleTogether(ctx, own)
	}
	return errs
}

// settlement is one of a batch.
type settlement struct {
	charges []window.Charge // one
	at      []int64         // under each name
	delta   int64
	verdict *error // where the verdict goes
}

func (s *Store) newSettlement(of *engine.Settlement, err *error) settlement {
	c := of.Charge
	c.Cost, c.Fields = max(of.Delta, -of.Delta), nil
	at := []int64{of.At, of.At + int64(of.Former)}[:min(len(s.namings), 2)]
	return settlement{[]window.Charge{c}, at, of.Delta, err}
}

// settleApart settles in calls of one charge under one name, which all go at once.
func (s *Store) settleApart(ctx context.Context, all []settlement) {
	var calls []*wire.Call
	for i := range all {
		for k := range s.namings {
			calls = append(calls, s.writer.Script(s.namings[k:k+1], wire.Settle, [][]window.Charge{all[i].charges}, all[i].at[k], all[i].delta))
		}
	}
	s.run(ctx, calls)
	for i := range all {
		s.settled(&all[i], s.settleError(ctx, calls[:len(s.namings)]))
		calls = calls[len(s.namings):]
	}
}

// settleTogether settles in calls of many charges, under all names. What failed in one of these,
// and changed nothing, is tried again by itself, for the words of the server.
func (s *Store) settleTogether(ctx context.Context, all []settlement) {
	var calls, again []*wire.Call
	var groups [][]settlement
	for len(all) > 0 {
		own := s.settleInOne(all)
		calls, groups, all = append(calls, s.newSettleEach(own)), append(groups, own), all[len(own):]
	}
	s.run(ctx, calls)
	var undone []*settlement
	for i, c := range calls {
		for j := range groups[i] {
			one := &groups[i][j]
			if c.Op == wire.Settle || c.Err != nil {
				s.settled(one, s.settleError(ctx, calls[i:i+1]))
				continue
			}
			err := c.Verdict(j)
			if err == failure.ErrUndone { //nolint:errorlint // it is not wrapped
				undone, again = append(undone, one), append(again, s.newSettleEach(groups[i][j:j+1]))
				continue
			}
			s.settled(one, s.words.Fail(ctx, err))
		}
	}
	s.run(ctx, again)
	for i, one := range undone {
		s.settled(one, s.settleError(ctx, again[i:i+1]))
	}
}

// settleInOne returns the settlements at the head of all that one run of the script settles.
func (s *Store) settleInOne(all []settlement) []settlement {
	weight := int64(0)
	for i := range all {
		own := s.settleWeight(&all[i])
		if i > 0 && weight+own > batch.MaxWeight {
			return all[:i]
		}
		weight += own
	}
	return all
}

// settleWeight is weightOf for a settlement: what is given back is found at its time, and one slice
// is written at most.
func (s *Store) settleWeight(one *settlement) int64 {
	c := &one.charges[0]
	if weight := window.FactsOf(c.Algorithm).SettleWeight; weight != nil {
		return weight(c) * int64(len(s.namings))
	}
	return s.weightOf(one.charges)
}

// newSettleEach writes a call. A single settlement fails with the words of the server.
func (s *Store) newSettleEach(own []settlement) *wire.Call {
	requests, numbers := make([][]window.Charge, len(own)), make([]int64, 0, 2*len(own))
	for i := range own {
		requests[i], numbers = own[i].charges, append(numbers, own[i].at[0], own[i].delta)
	}
	op := wire.SettleEach
	if len(own) == 1 {
		op = wire.Settle
	}
	return s.writer.Script(s.namings, op, requests, numbers...)
}

// settled notes the verdict on a settlement.
func (s *Store) settled(one *settlement, err error) {
	*one.verdict = err
	if one.delta < 0 {
		s.denials.Forget(&one.charges[0])
	}
}

// book books the ends of leases in one round trip, and returns an error for each, or nil.
func (s *Store) book(ctx context.Context, all []leases.Booking) []error {
	errs := make([]error, len(all))
	var calls []*wire.Call
	for _, b := range all {
		requests, numbers := [][]window.Charge{{*b.Charge}}, []int64{b.At, -b.Charge.Cost}
		if b.Used > 0 {
			requests, numbers = append(requests, requests[0]), append([]int64{0, b.Used}, numbers...)
		}
		calls = append(calls, s.newSettleCalls(wire.Settle, requests, numbers...)...)
	}
	s.run(ctx, calls)
	for i, b := range all {
		each := len(calls) / len(all)
		errs[i] = s.settleError(ctx, calls[i*each:(i+1)*each])
		if b.Used < b.Charge.Cost {
			s.denials.Forget(b.Charge)
		}
	}
	return errs
}

// all makes calls that have nothing to say, and returns the first error.
func (s *Store) all(ctx context.Context, calls []*wire.Call) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.run(ctx, calls)
	return s.settleError(ctx, calls)
}

// settleError returns the first error of calls about one counter, under all of its names.
func (s *Store) settleError(ctx context.Context, calls []*wire.Call) error {
	err := s.firstError(ctx, calls)
	if err != nil && len(s.namings) > 1 && slices.ContainsFunc(calls, func(c *wire.Call) bool {
		return !failure.Uncharged(c.Err) || len(c.Names) > 1 && errors.Is(err, window.ErrForeign)
	}) {
		return failure.Unknown(err) // it may be done under one of the names
	}
	return err
}

func (s *Store) firstError(ctx context.Context, calls []*wire.Call) error {
	for _, c := range calls {
		if c.Err != nil {
			return s.words.Fail(ctx, c.Err)
		}
	}
	return nil
}

// holds are receipts that are still to be settled.
type holds struct {
	n       atomic.Int64
	longest atomic.Int64 // a time.Duration; see engine.Holder
}

// Hold implements engine.Holder.
func (s engineStore) Hold(longest time.Duration) {
	s.holds.n.Add(1)
	for {
		before := s.holds.longest.Load()
		if int64(longest) <= before || s.holds.longest.CompareAndSwap(before, int64(longest)) {
			return
		}
	}
}

// Release implements engine.Holder.
func (s engineStore) Release() { s.holds.n.Add(-1) }

// isSettling reports whether receipts are still to be settled. A request that holds units may stay open for any time: Close frees
// them without it.
func (s *Store) isSettling() bool {
	units, _ := s.totals.Held()
	return s.holds.n.Load() > units
}

// Held returns for how long, from when the store was to be closed, it has to stay open for what
// is still to be settled; 0: there is nothing.
func (s engineStore) Held() time.Duration {
	if s.holds.n.Load() == 0 {
		return 0
	}
	return time.Duration(s.holds.longest.Load())
}
