package windowtest

import (
	"context"
	"slices"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Packed returns a store that packs what can be packed: all counters of a zone
// together.
func Packed(s window.Store) window.Store { return packing{s} }

type packing struct{ window.Store }

// packed opens stores that pack.
func packed(open Open) Open {
	return func(t *testing.T, clock *Clock) window.Store { return Packed(open(t, clock)) }
}

// alsoPacked runs a test a second time, on stores that pack.
func alsoPacked(test func(*testing.T, Open)) func(*testing.T, Open) {
	return func(t *testing.T, open Open) {
		test(t, open)
		t.Run("packed", func(t *testing.T) { test(t, packed(open)) })
	}
}

func pack(charges ...window.Charge) []window.Charge {
	charges = slices.Clone(charges)
	for i := range charges {
		if c := &charges[i]; c.Algorithm != nil && window.CheckPack(c.Algorithm, len(c.Policies), 1) == nil {
			c.Pack = 1
		}
	}
	return charges
}

func (p packing) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return p.TakeInto(ctx, nil, charges)
}

// TakeInto is Take with room for the decisions.
func (p packing) TakeInto(ctx context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	return engine.TakeInto(ctx, p.Store, room, pack(charges...))
}

func (p packing) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i] = pack(requests[i]...)
	}
	return p.Store.TakeBatch(ctx, requests)
}

func (p packing) Peek(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return p.Store.Peek(ctx, pack(charges...))
}

func (p packing) Settle(ctx context.Context, charge window.Charge, at, delta int64) error {
	return p.Store.Settle(ctx, pack(charge)[0], at, delta)
}

func (p packing) Reset(ctx context.Context, charge window.Charge) error {
	return p.Store.Reset(ctx, pack(charge)[0])
}
