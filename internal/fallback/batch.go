package fallback

import (
	"context"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TakeBatch is Take for many requests, one after the other. The store gets them in one call, unless
// units are owed that have to be booked before it decides.
func (g *Guard) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	if !g.settled() {
		results := make([]window.Result, len(requests))
		for i, charges := range requests {
			results[i].Decisions, results[i].Err = g.Take(ctx, charges)
		}
		return results
	}
	asked := g.now()
	results := g.breaker.TakeBatch(ctx, requests)
	for i := range results {
		if results[i].Err == nil {
			g.hold(requests[i], results[i].Decisions)
		}
	}
	if g.users.Load() == 0 {
		return results
	}
	heard := g.now()
	for i := range results {
		if results[i].Err == nil && len(requests[i]) > 0 {
			g.table().note(asked, heard, requests[i], results[i].Decisions)
		}
	}
	return results
}
