package fallback

import (
	"slices"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// maxDebtors bounds the counters that are booked in the background, of some 300 bytes each.
// Further counters are booked when they are asked for.
const maxDebtors = 1 << 16

// debtor is a counter on which units are owed, or that has corrections.
type debtor struct {
	charge window.Charge // the one that looks back furthest; without cost and fields
	late   *corrections  // nil: none
}

// owe notes units that were admitted here, and that the store does not have.
func (c *Counts) owe(hash uint64, charge *window.Charge, units int64) {
	c.debtors.Add(hash, func(d *debtor) {
		d.update(charge)
		c.owed.add(&d.charge, units)
	})
}

// takeOut returns what is owed on a counter, and forgets it. The lock of the debtors must be held.
func (c *Counts) takeOut(d *debtor, charge *window.Charge) (units int64, late *corrections) {
	if d.charge.Algorithm != nil {
		charge = &d.charge
	}
	late, d.late = d.late, nil
	return c.owed.takeOut(charge), late
}

// isSettled reports whether nothing is owed on a debtor, and nothing is to be corrected.
func (c *Counts) isSettled(d *debtor) bool { return d.late == nil && c.owed.of(&d.charge) == 0 }

// lasting returns a copy that outlives the request, without what only the request has.
func lasting(c *window.Charge) window.Charge {
	own := *c
	own.Key, own.Policies = strings.Clone(c.Key), slices.Clone(c.Policies)
	own.Cost, own.Fields = 0, nil
	return own
}

// update makes d's charge the newest of those that look back furthest.
func (d *debtor) update(c *window.Charge) {
	old := &d.charge
	if old.Algorithm == c.Algorithm && old.Pack == c.Pack && old.Lease == c.Lease && slices.Equal(old.Policies, c.Policies) {
		return
	}
	if old.Algorithm == nil || counter(c).Policies[0].Window >= counter(old).Policies[0].Window {
		d.charge = lasting(c)
	}
}
