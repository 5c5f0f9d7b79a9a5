package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/resp"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/totals"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// totalsTogether is how many totals one run of the script takes.
const totalsTogether = 64

// awaitTotals waits until it is known what the server counts of units that are held, as it is but after a call was lost. If
// it has to wait, it sets end, unless that is set, and returns by then.
func (s *Store) awaitTotals(ctx context.Context, end *time.Time, charges []window.Charge) error {
	for i := range charges {
		if !engine.IsHeld(&charges[i]) {
			continue
		}
		if doubt := s.totals.Doubt(&charges[i]); doubt != nil {
			if end.IsZero() {
				*end = time.Now().Add(s.timeout)
			}
			timer := time.NewTimer(time.Until(*end))
			defer timer.Stop()
			select {
			case <-doubt:
			case <-timer.C:
				return s.busy()
			case <-ctx.Done():
				return s.words.FailUncharged(ctx, ctx.Err())
			}
		}
	}
	return nil
}

// answered ends the takes of units that are held of a call, of which results are the answers.
func (s *Store) answered(c *wire.Call, results []window.Result) {
	for _, sent := range c.Sent() {
		r, outcome := &results[sent.Request], totals.Unknown
		if r.Err == nil && window.Allowed(r.Decisions) {
			outcome = totals.Passed
		} else if r.Err == nil || errors.Is(r.Err, failure.ErrUndone) || failure.Uncharged(r.Err) {
			outcome = totals.Denied
		}
		s.totals.Answered(sent, outcome)
	}
}

// giveUp gives back the units that are held of a request whose caller has gone, or which another charge denied.
func (s *Store) giveUp(charges []window.Charge, r window.Result) {
	for i := range charges {
		if c := &charges[i]; engine.IsHeld(c) && r.Err == nil && window.Allowed(r.Decisions) {
			s.totals.GiveBack(c, c.Cost, len(s.namings) == 1)
		}
	}
}

// tell sends totals. It returns for each the reply of the script under all names, or what is below 0.
func (s *Store) tell(ctx context.Context, charges []window.Charge) []int64 {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	names, together := len(s.namings), totalsTogether
	if s.cluster {
		together = 1
	}
	var calls []*wire.Call
	for part := range slices.Chunk(charges, together) {
		requests := make([][]window.Charge, len(part))
		for i := range part {
			requests[i] = part[i : i+1]
		}
		calls = append(calls, s.newSettleCalls(wire.SettleEach, requests)...)
	}
	s.run(ctx, calls)
	codes := make([]int64, 0, len(charges)*names)
	for _, c := range calls {
		own := make([]int64, len(c.Requests)*len(c.Names))
		if c.Err == nil && len(c.Reply) == 1+len(own) {
			copy(own, c.Reply[1:])
		} else {
			for i := range own {
				own[i] = -1
			}
		}
		codes = append(codes, own...)
	}
	replies := make([]int64, len(charges))
	for i := range replies {
		own := codes[i*names : (i+1)*names]
		if replies[i] = slices.Min(own); replies[i] >= 0 {
			lost := int64(0)
			for _, code := range own {
				lost |= code & 1
			}
			replies[i] = slices.Max(own)&^1 | lost
		}
	}
	return replies
}

// Totals implements engine.TotalsLister.
func (s engineStore) Totals(ctx context.Context, charge window.Charge) ([]engine.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	pipe := s.client.Pipeline() // to one server, as it has one key
	key := string(s.namings[0].AppendKey(nil, &charge))
	fields := pipe.HGetAll(ctx, key)
	clock := pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, s.words.Fail(ctx, err)
	}
	now := clock.Val().UnixMilli()
	if s.now != nil {
		now = s.now()
	}
	var all []engine.Total
	for instance, value := range fields.Val() {
		n, ok := resp.Integers(value)
		if !ok || len(n) != 7 {
			return nil, s.words.Fail(ctx, errTotals)
		}
		units, at, lease, since := n[2]-n[3], n[4], n[5], n[6]
		if units > 0 && at+lease > now {
			all = append(all, engine.Total{Instance: instance, Units: units, Age: millis(now - since), Silent: millis(now - at)})
		}
	}
	slices.SortFunc(all, func(a, b engine.Total) int { return strings.Compare(a.Instance, b.Instance) })
	return all, nil
}

// errTotals is the error of a field that another program has written.
const errTotals = failure.RefusalError("WRONGTYPE not a total")

func millis(ms int64) time.Duration { return time.Duration(max(0, ms)) * time.Millisecond }
