// Package fallback keeps limits while a store is away.
//
// A [Guard] wraps a store that several processes share. While the store does not decide, the
// guard decides on counts of this process, which start from what the store was last known to
// have counted. Units that the guard admits are booked in the store once the store is back.
package fallback

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Store is a store that a Guard wraps.
type Store interface {
	window.Store
	engine.Pinger
}

// Options of a Guard.
type Options struct {
	// Called on every change of the state of the store, or of a part of it, one after the
	// other; see NewBreaker. Nil: none.
	OnChange func(part string, open bool, cause error)
	// Called on every ping that fails while the store, or a part of it, is away. Nil: none.
	OnPing func(part string, cause error)
	// Local counts of the store's counters. Nil: the guard has its own, and closes them.
	Counts *Counts
	// The guard whose count of processes divides limits in TakeLocal. It must be closed last.
	// Nil: the guard counts processes itself.
	Presence *Guard
}

// Guard decides on requests, by the store or in its place. It is safe for concurrent
// use.
//
// The limit holds in every window as far as this process knows: for units that the store was
// last known to have counted, and for units that were admitted here. Units known from the
// store count from the first local decision on their key. Units admitted here count again
// from when they are booked, so that a client may regain them up to one window late. With
// several limits, the shortest sees all of these units.
//
// Units that were admitted here are booked at most once: before the store decides on the key
// again, or in the background as soon as the store answers. A request that may have been
// charged in the store is never booked again. If the store did not charge such a request, its
// units pass beyond the limit. The same holds for requests in flight when the store goes or
// comes back. Counts of CL.THROTTLE cannot be booked.
type Guard struct {
	*Counts
	own      bool            // they are this guard's
	open     map[string]bool // parts of the store for which the breaker is, as far as it has told
	store    Store
	breaker  *breaker.Breaker
	presence presence
	booking  sync.WaitGroup // rounds of the background that use it
}

// New returns a guard of a store, which it does not close.
func New(store Store, o Options) *Guard {
	g := &Guard{Counts: o.Counts, store: store, open: make(map[string]bool)}
	if g.own = g.Counts == nil; g.own {
		g.Counts = NewCounts()
	}
	g.presence.store, _ = store.(engine.Instancer)
	g.presence.seen = &g.seen
	if o.Presence != nil {
		g.presence.seen = o.Presence.presence.seen
	}
	g.breaker = breaker.New(store, func(part string, open bool, cause error) {
		g.changed(part, open)
		if o.OnChange != nil {
			o.OnChange(part, open, cause)
		}
	}, o.OnPing)
	for _, part := range g.away.parts() {
		g.breaker.ForceOpen(part, errBefore)
	}
	g.register(g)
	return g
}

// Reach waits until the store answers. See Breaker.Reach.
func (g *Guard) Reach(ctx context.Context) error { return g.breaker.Reach(ctx) }

var errBefore = errors.New("it was before the configuration was loaded")

// changed notes for guards to come that a part of the store is away, or back.
func (g *Guard) changed(part string, open bool) {
	if open {
		g.open[part] = true
		g.away.add(part, 1)
	} else {
		delete(g.open, part)
		g.away.add(part, -1)
	}
}

// Close ends what the guard has started.
func (g *Guard) Close() error {
	if g.unregister(g) {
		g.bookRest()
	}
	g.presence.close()
	err := g.breaker.Close()
	for part := range g.open {
		g.changed(part, false)
	}
	if g.own {
		err = errors.Join(err, g.Counts.Close())
	}
	return err
}

// Take asks the store, unless it is known to be away.
func (g *Guard) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return g.TakeInto(ctx, nil, charges)
}

// TakeInto is Take with room for the decisions.
func (g *Guard) TakeInto(ctx context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	ds, err := g.take(ctx, room, charges)
	if err == nil {
		g.hold(charges, ds)
	}
	return ds, err
}

func (g *Guard) take(ctx context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	switch {
	case !g.settled() && !g.breaker.Open(charges...):
		return g.repayAndTake(ctx, charges, room)
	case g.users.Load() == 0:
		return g.breaker.TakeInto(ctx, room, charges)
	}
	return g.ask(ctx, charges, room)
}

// ask asks the store, and keeps what it says.
func (g *Guard) ask(ctx context.Context, charges []window.Charge, room []window.Decision) ([]window.Decision, error) {
	asked := g.now()
	ds, err := g.breaker.TakeInto(ctx, room, charges)
	if err == nil {
		g.table().note(asked, g.now(), charges, ds)
	}
	return ds, err
}

func (g *Guard) repayAndTake(ctx context.Context, charges []window.Charge, room []window.Decision) ([]window.Decision, error) {
	if err := engine.CheckCharges(charges); err != nil {
		return nil, err
	}
	if timeout := g.timeout(); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout) // of both calls
		defer cancel()
	}
	if s, ok := g.store.(interface {
		HasTimeFor(ctx context.Context, trips int64) bool
	}); ok && !s.HasTimeFor(ctx, 2) {
		return g.repayBeside(ctx, charges, room)
	}
	booked, err := g.repay(ctx, charges)
	var ds []window.Decision
	if err == nil {
		ds, err = g.ask(ctx, charges, room)
	}
	if err != nil {
		g.doubt(charges, booked)
	}
	return ds, err
}

// timeout returns the longest that one call of the store waits, or 0 if the store does not
// say.
func (g *Guard) timeout() time.Duration {
	if s, ok := g.store.(interface{ Timeout() time.Duration }); ok {
		return s.Timeout()
	}
	return 0
}

// TakeLocal decides in place of the store, which could not: cause is its error. If the caller is gone, it returns cause. With
// share, limits are divided by the number of processes that were last seen to share the
// store. Unsettled are the places of charges that get receipts: what they spend is owed to the
// store once it is settled.
func (g *Guard) TakeLocal(ctx context.Context, charges []window.Charge, cause error, share bool, unsettled ...int) ([]window.Decision, error) {
	if ctx.Err() != nil {
		return nil, cause
	}
	if err := engine.CheckCharges(charges); err != nil {
		return nil, err
	}
	n := int64(1)
	if share {
		n = g.presence.size()
	}
	k, own := g.table(), make([]window.Charge, len(charges))
	var room [2]uint64
	hashes := room[:0]
	for i := range charges {
		own[i] = divided(charges[i], n)
		hashes = append(hashes, k.hash(&charges[i]))
	}
	locked := k.lock(hashes)
	defer k.unlock(locked)
	for i := range own {
		if !engine.IsHeld(&own[i]) {
			g.start(k.shard(hashes[i]), hashes[i], &own[i], n)
		}
	}
	ds, err := g.local.Take(ctx, own)
	if err != nil || !window.Allowed(ds) {
		return ds, err
	}
	for i := range own {
		switch c := &charges[i]; {
		case c.Cost == 0:
		case engine.IsHeld(c):
			_ = g.store.ChargeMore(ctx, *c, c.Cost) // it asks no server
		case errors.Is(cause, window.ErrUnknown) || engine.IsNative(c):
			g.inDoubt.add(c, c.Cost)
		case slices.Contains(unsettled, i):
		default:
			g.owe(hashes[i], c, c.Cost)
		}
	}
	return ds, nil
}

// IsOutage reports whether err says that a store could not decide for a caller that still waits.
func IsOutage(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, window.ErrUnavailable)
}

// start makes the local count of a key what the store was known to have, divided by n, if
// anything was known, and what it is not known to have of the units that were admitted here.
// They count from now on: when they were spent is not known, and the store's own count of time
// is another. The lock of the key's shard must be held.
func (g *Guard) start(s *shard, hash uint64, own *window.Charge, n int64) {
	used, full, ok := s.takeOut(g.now(), hash)
	if !ok {
		return
	}
	used = g.starts(own, (used+n-1)/n, full)
	_ = g.local.Reset(context.Background(), *own)
	if used > 0 {
		_ = g.local.ChargeMore(context.Background(), *own, used)
	}
}

// starts returns the units from which the local count of a key starts. If nothing was left, the
// store may have more than the limit, which may be another now. The lock of the key's shard must
// be held.
func (g *Guard) starts(own *window.Charge, used int64, full bool) int64 {
	used += g.owed.of(own) + g.inDoubt.of(own)
	if full {
		used = max(used, g.counted(own))
	}
	return used
}

// counted returns what is counted here, also above a limit. A bucket holds no more.
func (g *Guard) counted(c *window.Charge) (most int64) {
	look := *c
	look.Cost, look.Policies = 0, slices.Clone(c.Policies)
	if !window.FactsOf(c.Algorithm).Bucket {
		for i := range look.Policies {
			p := &look.Policies[i]
			p.Limit = window.MaxProduct / p.Window.Milliseconds()
			for p.Limit > c.Policies[i].Limit && window.CheckPolicy(c.Algorithm, *p) != nil {
				p.Limit /= 2 // short slices go with small limits only
			}
		}
	}
	ds, err := g.local.Peek(context.Background(), []window.Charge{look})
	if err != nil {
		return 0 // what can be charged can be counted
	}
	for i := range ds {
		most = max(most, ds[i].Limit-ds[i].Remaining)
	}
	return most
}
