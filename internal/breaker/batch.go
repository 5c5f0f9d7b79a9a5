package breaker

import (
	"context"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TakeBatch is Store.TakeBatch. A request that needs a part which is away gets ErrUnavailable and
// ErrOpen, and the store is asked about the others only.
func (b *Breaker) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	results := make([]window.Result, len(requests))
	rest, places := make([][]window.Charge, 0, len(requests)), make([]int, 0, len(requests))
	for i, charges := range requests {
		if b.Open(charges...) {
			results[i].Err = errBreakerOpen
			continue
		}
		rest, places = append(rest, charges), append(places, i)
	}
	if len(rest) == 0 {
		return results
	}
	began := b.tick.Load()
	for i, r := range b.store.TakeBatch(ctx, rest) {
		results[places[i]] = r
		if r.Err != nil {
			b.failed(began, rest[i], r.Err)
		} else if window.Allowed(r.Decisions) {
			b.allowed(rest[i], r.Decisions)
		}
	}
	return results
}
