package main

import (
	"context"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// limit is what a table limits each key to.
type limit struct {
	max    int
	window time.Duration
}

func (l limit) policies() []window.Policy {
	return []window.Policy{{Limit: int64(l.max), Window: l.window}}
}

// way is how a zone can be kept, with the words for it.
type way struct {
	name  string
	under func(*window.Charge)
}

var (
	byZset   = way{"zset", func(c *window.Charge) { c.Algorithm = window.Zset{} }}
	byLog    = way{"log", func(c *window.Charge) { c.Algorithm = window.Log{} }}
	bySlices = way{"slices", func(c *window.Charge) { c.Algorithm = window.Slices{} }}
	byGCRA   = way{"gcra", func(c *window.Charge) { c.Algorithm = window.GCRA{} }}

	byLeasedZset = way{"zset, lease 1000", func(c *window.Charge) { byZset.under(c); c.Lease = lease }}
	byLeasedLog  = way{"log, lease 1000", func(c *window.Charge) { byLog.under(c); c.Lease = lease }}
)

// packed keeps gcra for many keys in one key of Redis.
func packed(expected int) way {
	return way{"gcra, pack", func(c *window.Charge) { byGCRA.under(c); c.Pack = int64(expected) }}
}

// and returns ways with some more.
func and(more ...way) []way { return append(ways[:len(ways):len(ways)], more...) }

// lease has the time of a lease that a Caddyfile gives if it names none.
var lease = window.Lease{Units: 1000, TTL: time.Second}

// ways are those that every table compares.
var ways = []way{byZset, byLog, bySlices, byGCRA}

func (w way) charge(l limit) window.Charge {
	// The zone tells apart what one store holds of several.
	c := window.Charge{Zone: w.name, Policies: l.policies(), Cost: 1}
	w.under(&c)
	return c
}

// of returns the limiter that keeps zones in a store in this way.
func (w way) of(store window.Store, l limit) limiter {
	return limiter{w.name, func() take {
		charges := []window.Charge{w.charge(l)}
		var decisions []window.Decision
		return func(ctx context.Context, key string) (bool, error) {
			charges[0].Key = key
			var err error
			decisions, err = engine.TakeInto(ctx, store, decisions, charges)
			return window.Allowed(decisions), err
		}
	}}
}
