package redis

import (
	"context"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// Play implements windowtest.Player: each call is in runs of the script of its own, and all are
// in one pipeline. The server is not part of a Cluster, and nothing is remembered or leased.
func (s *Store) Play(ctx context.Context, clock *windowtest.Clock, calls []windowtest.Call) [][]window.Result {
	rounds, all := make([]round, len(calls)), []*wire.Call(nil)
	for i, c := range calls {
		clock.Set(c.Now)
		rounds[i].results = make([]window.Result, len(c.Requests))
		s.planCall(&rounds[i], c)
		all = append(all, rounds[i].calls...)
	}
	// The server has the script then: it refuses none of the calls, which would be sent again after
	// the others.
	err := s.Ping(ctx)
	s.run(ctx, all)
	results := make([][]window.Result, len(calls))
	for i := range rounds {
		results[i] = rounds[i].results
		switch calls[i].Op {
		case windowtest.Settle, windowtest.Reset:
			results[i][0].Err = s.settleError(ctx, rounds[i].calls)
			continue
		}
		for _, c := range rounds[i].calls {
			c.Answer(results[i][c.First:][:len(c.Requests)])
		}
	}
	if err != nil {
		results[0][0].Err = err
	}
	return results
}

// planCall writes what Store would send for a call.
func (s *Store) planCall(r *round, c windowtest.Call) {
	switch c.Op {
	case windowtest.Take, windowtest.TakeBatch:
		s.plan(r, wire.Take, c.Requests)
	case windowtest.Peek:
		s.plan(r, wire.Peek, c.Requests)
	case windowtest.Settle:
		if c.Delta != 0 {
			r.calls = s.newSettleCalls(wire.Settle, c.Requests, c.At, c.Delta)
		}
	case windowtest.Reset:
		for i := range s.namings {
			r.calls = append(r.calls, s.writer.Script(s.namings[i:i+1], wire.Reset, c.Requests))
		}
	}
}
