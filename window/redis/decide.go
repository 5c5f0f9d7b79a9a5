package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/batch"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// take decides on one request, together with others. In a Cluster every node has a
// Batcher of its own, for one that hangs not to stop the others; a request that
// several nodes decide on goes alone.
func (s *Store) take(ctx context.Context, charges []window.Charge, room []window.Decision) window.Result {
	server := ""
	if s.cluster {
		if !s.placed.Load() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.timeout)
			defer cancel()
		}
		for i := range charges {
			for k := range s.namings {
				address := s.home(ctx, &s.namings[k], &charges[i])
				if i+k > 0 && address != server {
					return s.decide(ctx, wire.Take, [][]window.Charge{charges})[0]
				}
				server = address
			}
		}
	}
	return s.batcher(server).Take(ctx, charges, room)
}

// batcher returns that of a server.
func (s *Store) batcher(server string) *batch.Batcher {
	if b, ok := s.batchers.Load(server); ok {
		return b.(*batch.Batcher)
	}
	b, _ := s.batchers.LoadOrStore(server, s.newBatcher())
	return b.(*batch.Batcher)
}

func (s *Store) newBatcher() *batch.Batcher {
	return batch.New(batch.Env{
		Timeout:     s.timeout,
		MaxInFlight: s.connections(),
		RTT:         s.rtt.Get,
		Distance:    s.rtt.Shortest,
		Weight:      s.weightOf,
		Decider: func() func(context.Context, [][]window.Charge) []window.Result {
			r := new(round)
			return func(ctx context.Context, requests [][]window.Charge) []window.Result {
				return s.decideIn(ctx, r, wire.Take, requests)
			}
		},
		Fail: func(ctx context.Context, err error, sent bool) error {
			if sent {
				return s.words.Fail(ctx, err)
			}
			return s.words.FailUncharged(ctx, err)
		},
		GiveUp: s.giveUp,
		Busy:   s.busy(),
	})
}

// busy returns the error of a request that there is no room to wait for.
func (s *Store) busy() error {
	return fmt.Errorf("%s: %w: %w", s.name, window.ErrUnavailable, window.ErrBusy)
}

// weightOf tells how long the script takes to decide on a request.
func (s *Store) weightOf(charges []window.Charge) int64 {
	var weight int64
	for i := range charges {
		weight += window.FactsOf(charges[i].Algorithm).Weight(&charges[i])
	}
	return weight * int64(len(s.namings))
}

// round holds what deciding on requests takes. Rounds are reused.
type round struct {
	results []window.Result
	calls   []*wire.Call
	spare   []*wire.Call // of the script
}

// decide answers requests in one round trip. Each has charges, which make sense.
func (s *Store) decide(ctx context.Context, op wire.Op, requests [][]window.Charge) []window.Result {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.decideIn(ctx, new(round), op, requests)
}

// decideIn is decide until ctx ends. The results are good until r is used again.
func (s *Store) decideIn(ctx context.Context, r *round, op wire.Op, requests [][]window.Charge) []window.Result {
	if s.cluster {
		return s.decideApart(ctx, op, requests)
	}
	clear(r.results)
	r.results = slices.Grow(r.results[:0], len(requests))[:len(requests)]
	s.plan(r, op, requests)
	s.decideTogether(ctx, r.calls, r.results)
	var again []*wire.Call // alone, a request gets the server's own words
	for i, charges := range requests {
		if r.results[i].Err != nil && errors.Is(r.results[i].Err, failure.ErrUndone) {
			c := s.newCall(s.namings, op, charges)
			c.First = i
			again = append(again, c)
		}
	}
	s.decideTogether(ctx, again, r.results)
	return r.results
}

// plan makes the calls that decide on the requests: one of the script for each group that
// may go together, and one of CL.THROTTLE for each request that it decides on.
func (s *Store) plan(r *round, op wire.Op, requests [][]window.Charge) {
	for _, c := range r.calls {
		if c.Kept {
			r.spare = append(r.spare, c)
		}
	}
	r.calls = r.calls[:0]
	first, weight := 0, int64(0)
	for i, charges := range requests {
		own := s.weightOf(charges)
		apart := s.throttles(charges)
		if apart || weight > 0 && weight+own > batch.MaxWeight {
			s.planScript(r, op, requests, first, i)
			first, weight = i, 0
		}
		weight += own
		if apart {
			c := s.writer.Throttle(op, charges)
			c.First = i
			r.calls = append(r.calls, c)
			first, weight = i+1, 0
		}
	}
	s.planScript(r, op, requests, first, len(requests))
}

// planScript makes the call about requests first to end, if there are any.
func (s *Store) planScript(r *round, op wire.Op, requests [][]window.Charge, first, end int) {
	if first == end {
		return
	}
	var c *wire.Call
	if last := len(r.spare) - 1; last >= 0 {
		c, r.spare = r.spare[last], r.spare[:last]
	} else {
		c = &wire.Call{Names: s.namings, Kept: true}
	}
	s.writer.Write(c, op, requests[first:end])
	c.First = first
	r.calls = append(r.calls, c)
}

// decideTogether makes the calls, and writes the results of their requests.
func (s *Store) decideTogether(ctx context.Context, calls []*wire.Call, results []window.Result) {
	s.run(ctx, calls)
	for _, c := range calls {
		own := results[c.First : c.First+len(c.Requests)]
		c.Answer(own)
		s.answered(c, own)
		for i := range own {
			own[i].Err = s.words.Fail(ctx, own[i].Err)
		}
	}
}

// newCall writes a call about one request, of the script or of CL.THROTTLE.
func (s *Store) newCall(namings []naming.Naming, op wire.Op, charges []window.Charge) *wire.Call {
	if s.native(charges) != window.NativeOff {
		return s.writer.Throttle(op, charges)
	}
	return s.writer.Script(namings, op, [][]window.Charge{charges})
}

// run sends the calls in one round trip, and sets their reply or err.
func (s *Store) run(ctx context.Context, calls []*wire.Call) {
	s.leaveNative(ctx, calls)
	s.send(ctx, calls)
	s.send(ctx, s.refusedNative(ctx, calls))
	s.lookAgain(ctx, calls)
}

func (s *Store) send(ctx context.Context, calls []*wire.Call) {
	if len(calls) == 0 {
		return
	}
	whole := ctx
	ctx, cancel := s.rtt.InTime(whole)
	defer cancel()
	start := time.Now()
	wire.Send(ctx, s.client, calls)
	if calls[0].Err == nil {
		s.rtt.Note(start)
	} else if ctx != whole {
		s.rtt.NoConnection(whole, ctx, calls)
	}
}

// mostFar is how many batches are under way to a server at most.
const mostFar = 64

// connections returns how many the client makes to a server at most, within reason.
func (s *Store) connections() int {
	switch c := s.client.(type) {
	case *goredis.Client:
		return min(max(c.Options().PoolSize, batch.MinInFlight), mostFar)
	case *goredis.ClusterClient:
		return min(max(c.Options().PoolSize, batch.MinInFlight), mostFar)
	}
	return batch.MinInFlight
}
