package redis

import (
	"context"
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// SettleBatch implements engine.BatchSettler, in one round trip. One run of the script settles as
// much as one decides; in a Cluster each charge is a call of its own, for each of its names.
func (s *Store) SettleBatch(ctx context.Context, all []engine.Settlement) []error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	errs := make([]error, len(all))
	var own []settlement
	for i := range all {
		if errs[i] = engine.CheckSettle(all[i].Charge, all[i].Delta); errs[i] == nil && all[i].Delta != 0 {
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
	err     *error // where the verdict goes
}

func (s *Store) newSettlement(of *engine.Settlement, err *error) settlement {
	c := of.Charge
	c.Cost, c.Fields = max(of.Delta, -of.Delta), nil
	at := []int64{of.At, of.At + int64(of.Former)}[:min(len(s.namings), 2)]
	return settlement{[]window.Charge{c}, at, of.Delta, err}
}

// settleApart settles in calls of one charge under one name, which all go at once.
func (s *Store) settleApart(ctx context.Context, all []settlement) {
	var calls []*call
	for i := range all {
		for k := range s.namings {
			calls = append(calls, s.newScriptCall(s.namings[k:k+1], "settle", [][]window.Charge{all[i].charges}, all[i].at[k], all[i].delta))
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
	var calls, again []*call
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
			if c.op == "settle" || c.err != nil {
				s.settled(one, s.settleError(ctx, calls[i:i+1]))
				continue
			}
			err := c.settleVerdict(j)
			if err == errUndone { //nolint:errorlint // it is not wrapped
				undone, again = append(undone, one), append(again, s.newSettleEach(groups[i][j:j+1]))
				continue
			}
			s.settled(one, s.fail(ctx, err))
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
		if i > 0 && weight+own > batchWeight {
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
func (s *Store) newSettleEach(own []settlement) *call {
	requests, numbers := make([][]window.Charge, len(own)), make([]int64, 0, 2*len(own))
	for i := range own {
		requests[i], numbers = own[i].charges, append(numbers, own[i].at[0], own[i].delta)
	}
	op := "settle_each"
	if len(own) == 1 {
		op = "settle"
	}
	return s.newScriptCall(s.namings, op, requests, numbers...)
}

// settleVerdict reads what the script says of settlement i: nil, errUndone if nothing was changed
// under any name, or what the others are.
func (c *call) settleVerdict(i int) error {
	names := len(c.namings)
	if len(c.reply) != 1+names*len(c.requests) {
		return c.unexpected()
	}
	done, failed := 0, 0
	var err error
	for _, code := range c.reply[1+i*names:][:names] {
		switch code {
		case 0:
			done++
		case undone:
			failed++
		case forbidden:
			err = errForbidden
		case uncertain:
			err = errUnknown
		default:
			return fmt.Errorf("unexpected reply of the script: %d is no verdict on a settlement", code)
		}
	}
	switch {
	case done == names, err != nil:
		return err
	case failed == names:
		return errUndone
	}
	return errUnknown // done under one name only
}

// settled notes the verdict on a settlement.
func (s *Store) settled(one *settlement, err error) {
	*one.err = err
	if one.delta < 0 {
		s.denials.forget(&one.charges[0])
	}
}
