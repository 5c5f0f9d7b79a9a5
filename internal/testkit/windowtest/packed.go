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
func Packed(s window.Store) window.Store { return changing{s, pack} }

// changing is a store that is asked about charges which a function makes of others.
type changing struct {
	window.Store
	change func(...window.Charge) []window.Charge
}

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

// apart gives packed counters other names: in Redis, a counter that is not packed any more is another.
func apart(charges ...window.Charge) []window.Charge {
	charges = slices.Clone(charges)
	for i := range charges {
		if charges[i].Pack > 0 {
			charges[i].Zone += ", packed"
		}
	}
	return charges
}

func (s changing) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return s.TakeInto(ctx, nil, charges)
}

// TakeInto is Take with room for the decisions.
func (s changing) TakeInto(ctx context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	return engine.TakeInto(ctx, s.Store, room, s.change(charges...))
}

func (s changing) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i] = s.change(requests[i]...)
	}
	return s.Store.TakeBatch(ctx, requests)
}

func (s changing) Peek(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return s.Store.Peek(ctx, s.change(charges...))
}

func (s changing) GiveBack(ctx context.Context, charge window.Charge, at, units int64) error {
	return s.Store.GiveBack(ctx, s.change(charge)[0], at, units)
}

func (s changing) ChargeMore(ctx context.Context, charge window.Charge, units int64) error {
	return s.Store.ChargeMore(ctx, s.change(charge)[0], units)
}

func (s changing) Reset(ctx context.Context, charge window.Charge) error {
	return s.Store.Reset(ctx, s.change(charge)[0])
}
