package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// again is the time between two attempts to give back what a node did not take.
const again = 10 * time.Millisecond

// errLater is that of a call which has not been made yet.
var errLater = errors.New("not asked yet")

// giveBackLater gives back units that are not back yet, for the timeout of the store
// from now on, unless a node may have heard of them: it would take back what others
// spent in the same millisecond. What stays charged is reported.
func (s *Store) giveBackLater(calls []*call) {
	if calls = s.unheard(calls); len(calls) == 0 {
		return
	}
	for _, c := range calls { // which outlive the request, whose caller may read its charges
		charge := c.requests[0][0]
		charge.Key = strings.Clone(charge.Key)
		c.requests = [][]window.Charge{{charge}}
	}
	if !s.givebacks.run(func() { s.giveBackNow(calls) }) {
		s.stayCharged(calls)
	}
}

func (s *Store) giveBackNow(calls []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	for {
		s.run(ctx, calls)
		for _, c := range calls {
			s.denials.forget(&c.requests[0][0])
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
func (s *Store) unheard(calls []*call) []*call {
	var rest, failed []*call
	for _, c := range calls {
		switch {
		case c.err == nil:
		case errors.Is(c.err, errLater), uncharged(c.err):
			rest = append(rest, c)
		default:
			failed = append(failed, c)
		}
	}
	s.stayCharged(failed)
	return rest
}

// stayCharged reports units that were not given back.
func (s *Store) stayCharged(calls []*call) {
	for _, c := range calls {
		charge := &c.requests[0][0]
		s.report(fmt.Errorf("zone %q: %d units of a request that did not pass stay charged: %w", charge.Zone, charge.Cost, s.fail(context.Background(), c.err)))
	}
}
