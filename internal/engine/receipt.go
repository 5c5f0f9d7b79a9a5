package engine

import (
	"fmt"
	"sync/atomic"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Origin is where a charge was admitted.
type Origin uint8

// The places. A charge that was not made has no receipt.
const (
	InStore   Origin = iota // the store, or its server
	InProcess               // counts of this process, in the store's place
)

// Receipt proves that a charge was admitted, and names the units that it spent. Only a receipt
// can be settled, and only once. A nil Receipt is that of a charge of which nothing was spent.
type Receipt struct {
	// The charge as it was admitted. Cost is what it spent.
	Charge window.Charge
	// Decision.At and Decision.Former: when the units were charged, under each name.
	At     int64
	Former int32
	Origin Origin
	// Whether the store may have charged the same units, with Place InProcess: its answer
	// was lost. They stay charged there for one window, however the receipt is settled.
	InDoubt bool

	settled atomic.Bool
}

// Settle returns the settlement that makes units the final cost of the charge, which may be less or more than it spent. It
// reports false if there is nothing to settle, or if Settle was called before.
func (r *Receipt) Settle(units int64) (Settlement, bool) {
	if r == nil || r.settled.Swap(true) {
		return Settlement{}, false
	}
	return Settlement{Receipt: r, Delta: units - r.Charge.Cost}, true
}

// Settled reports whether Settle was called.
func (r *Receipt) Settled() bool { return r.settled.Load() }

// Settlement corrects what a charge spent. Delta has the meaning that it has for Settle; one
// of 0 tells a fallback that the units are spent for good.
type Settlement struct {
	*Receipt
	Delta int64
}

// CheckReceipts reports why no receipts can be had for charges of an algorithm, with or without a
// lease, in words for an operator.
//
// A lease books its units again at its end, so that they lose their time. A bucket loses it when
// they run in, and CL.THROTTLE takes nothing back.
func CheckReceipts(a window.Algorithm, lease window.Lease) error {
	if !window.FactsOf(a).Receipts {
		return fmt.Errorf("algorithm %s cannot give units back at the time at which they were spent; use zset, log, stream or slices", a.Name())
	}
	if lease.Units > 0 {
		return fmt.Errorf("lease %d: units that were taken ahead cannot be given back at the time at which they were spent; take out lease", lease.Units)
	}
	return nil
}
