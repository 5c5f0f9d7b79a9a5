package memory

import (
	"math/bits"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// account is what a request works on for one charge. The shard's lock is held.
type account struct {
	shard    *shard
	charge   *window.Charge
	name     name
	slot     int32 // none: the key is new, and kept only if it is spent on
	overflow bool  // there was no room for the key, and all such keys share
	ds       []window.Decision
}

// room holds the accounts of a usual request, so that it needs no allocation.
type room [2]account

// lock looks up the charges' keys, locks their shards in ascending order, and then
// reads the clock. It returns the accounts, in room if they fit; the locked shards,
// a bit each; and the time in ms.
//
// The results are not one struct: with the store in it, that would escape to the heap.
func (s *Store) lock(charges []window.Charge, room *room) (accounts []account, locked uint64, now int64) {
	accounts = room[:]
	if len(charges) > len(room) {
		accounts = make([]account, len(charges))
	}
	accounts = accounts[:len(charges)]
	for i := range charges {
		a := &accounts[i]
		shard := s.name(&a.name, &charges[i])
		a.charge, a.shard = &charges[i], &s.shards[shard]
		locked |= 1 << shard
	}
	for rest := locked; rest != 0; rest &= rest - 1 {
		s.shards[bits.TrailingZeros64(rest)].mu.Lock()
	}
	now = s.now()
	for i := range accounts {
		accounts[i].open(now)
	}
	return accounts, locked, now
}

func (s *Store) unlock(accounts []account, locked uint64) {
	for i := range accounts {
		if a := &accounts[i]; a.slot != none {
			a.shard.slot(a.slot).busy = false
		}
	}
	for rest := locked; rest != 0; rest &= rest - 1 {
		s.shards[bits.TrailingZeros64(rest)].mu.Unlock()
	}
}

// open finds the account's key. A new one for which there is no room shares the
// overflow key of its zone: no request passes uncounted. Keys that hold units are at most the
// requests in flight, and have a slot: what one gave back to an overflow key would be free for all.
func (a *account) open(now int64) {
	a.slot = a.shard.find(&a.name, false)
	if a.slot == none && !engine.IsHeld(a.charge) && !a.shard.hasRoom(now, &a.name) {
		a.overflow = true
		a.name = a.name.overflow()
		a.slot = a.shard.find(&a.name, true)
	}
	if a.slot != none {
		a.shard.slot(a.slot).busy = true
	}
}

func (a *account) history() window.History { return a.shard.history(a.slot) }

// keep sees to it that the key has a slot.
func (a *account) keep(now int64) {
	if a.slot == none && a.overflow {
		a.slot = a.shard.find(&a.name, true) // kept for another of the same request
	}
	if a.slot == none {
		a.slot = a.shard.insert(now, &a.name, a.overflow)
	}
}

// spend books the charge, on which ds were begun.
func (a *account) spend(now int64) {
	a.keep(now)
	c, till := a.lookBack(now)
	a.shard.write(a.slot, a.history().Spend(now, c, a.ds))
	a.note(now, a.ds)
	a.hasUntil(till)
}

// lookBack writes the key's horizon after a charge at now. It returns the charge, or a copy
// with a longer Lookback if other charges on the key need that, and the time up to which
// they, or its own Lookback, do, in Unix ms; 0: no longer than its policies.
func (a *account) lookBack(now int64) (c *window.Charge, till int64) {
	own, before := a.charge.Longest(), a.shard.horizon(a.slot)
	if f := window.FactsOf(a.charge.Algorithm); a.charge.Lookback > 0 && !f.Bucket && !f.Held {
		till = now + own // buckets tell it by History.Until
	}
	if before.window == own && before.till == 0 {
		return a.charge, till
	}
	after := horizon{window: own}
	if before.window > own {
		if newest, ok := a.history().Newest(a.charge.Algorithm); ok {
			after = before.after(own, now, newest)
		}
	}
	a.shard.setHorizon(a.slot, after)
	if after.window == own {
		return a.charge, till
	}
	longer := *a.charge
	longer.Lookback = time.Duration(after.window) * time.Millisecond
	return &longer, max(till, after.till)
}

// hasUntil keeps the key up to a time.
func (a *account) hasUntil(till int64) {
	sl := a.shard.slot(a.slot)
	sl.expires = max(sl.expires, till)
}

// note stores what the decisions say after units were spent.
func (a *account) note(now int64, ds []window.Decision) {
	sl := a.shard.slot(a.slot)
	sl.used, sl.expires = 0, now
	for i := range ds {
		d := &ds[i]
		sl.expires = max(sl.expires, now+d.ResetAfter.Milliseconds())
		sl.used = max(sl.used, level(d))
	}
	sl.expires = max(sl.expires, a.history().Until(a.charge.Algorithm))
	sl.hold(now, ds)
	if engine.IsHeld(a.charge) {
		sl.heldUntil = sl.expires
	}
}

// standing returns what the decisions would be on a charge that costs nothing; nil for units that are held, to which
// time does nothing.
func (a *account) standing(now int64) []window.Decision {
	if engine.IsHeld(a.charge) {
		return nil
	}
	c, h := *a.charge, a.history()
	c.Cost = 0
	ds := make([]window.Decision, len(c.Policies))
	h.Look(now, &c, ds)
	h.Explain(now, &c, ds, false)
	return ds
}

// gaveBack stores what the decisions say after units were given back. The key may be
// evicted if it no longer denies, and is dropped if no unit is left. Until when the key
// matters does not change: units that are left may count under another limit for longer than
// under those of this charge.
func (a *account) gaveBack(now int64) {
	if a.history().Empty(a.charge.Algorithm) {
		a.shard.drop(a.slot)
		a.slot = none
		return
	}
	sl := a.shard.slot(a.slot)
	expires := sl.expires
	sl.heldUntil = 0
	a.note(now, a.standing(now))
	sl.expires = max(expires, sl.expires)
}

// last keeps the key for as long as a denial says: under the limits of its units, they may have mattered
// for less.
func (sl *slot) last(now int64, ds []window.Decision) {
	for i := range ds {
		if wait := ds[i].RetryAfter; wait != window.Never {
			sl.expires = max(sl.expires, now+wait.Milliseconds())
		}
	}
}

// hold notes until when the key denies, for it must not be evicted before.
func (sl *slot) hold(now int64, ds []window.Decision) {
	for i := range ds {
		d := &ds[i]
		wait := d.RetryAfter
		if wait == window.Never {
			wait = 0
		}
		if d.Remaining == 0 {
			wait = max(wait, d.EffectiveWindow)
		}
		if wait > 0 {
			sl.heldUntil = max(sl.heldUntil, min(now+wait.Milliseconds(), sl.expires))
		}
	}
}

// level says how much of its limit a key has used, from 0 to 255.
func level(d *window.Decision) uint8 {
	if d.Limit == 0 {
		return 0
	}
	return uint8(255 - min(d.Remaining, d.Limit)*255/d.Limit)
}
