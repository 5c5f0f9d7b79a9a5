package overridebook

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/storeclock"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// Subscriber is a zone of a handler, as the book knows it. All fields but LogsKeys are required.
type Subscriber struct {
	Name string
	// Longest is the longest window that the configuration tells.
	Longest time.Duration
	// Records returns what records have to fit. The hasher is the book's.
	Records func(overrides.Hasher) overrides.Target
	// NotApplied counts records that do not fit.
	NotApplied prometheus.Counter
	// Orders is what this process knows of orders for the zone. Zones of one name share it.
	Orders *enforce.Sync
	// ApplyRemote follows an order that the store has.
	ApplyRemote func(enforce.Order)
	// InForce gets the overrides that hold.
	InForce *InForce
	// LogsKeys is whether keys may be in the log.
	LogsKeys bool
}

// InForce are the overrides of a zone that hold now. Requests load one pointer. A nil InForce has none.
type InForce struct {
	now atomic.Pointer[snapshot] // nil: no overrides, and none for a while
}

// snapshot holds the overrides of a zone at a time. It does not change.
type snapshot struct {
	clock   *storeclock.Clock
	set     *overrides.Set // nil without any
	misfits []overrides.Misfit
	// Up to when no key takes a lease, and from when on, in Unix ms: other Caddys may know other
	// records around these times. 0: not at all.
	quietUntil, nextEnd int64
	// Records with longer windows than the zone's, that hold or have held until a while ago; and when the
	// first of them is forgotten, in Unix ms. Nil and 0 without any.
	back    *overrides.Set
	backEnd int64
}

// current returns what holds; nil if that is nothing.
func (f *InForce) current() *snapshot {
	if f == nil {
		return nil
	}
	return f.now.Load()
}

// Rule returns the override of a key as the zone counts it; nil without one.
func (f *InForce) Rule(key string) *overrides.Rule {
	now := f.current()
	if now == nil {
		return nil
	}
	return now.set.Find(key)
}

// RuleOfNetwork returns the override of a network of a tier; nil without one.
func (f *InForce) RuleOfNetwork(network string) *overrides.Rule {
	now := f.current()
	if now == nil {
		return nil
	}
	return now.set.FindNetwork(network)
}

// MayLease reports whether all Caddys know the same overrides of the zone.
func (f *InForce) MayLease() bool {
	now := f.current()
	if now == nil {
		return true
	}
	ms := now.clock.Milli()
	return ms >= now.quietUntil && (now.nextEnd == 0 || ms < now.nextEnd)
}

// LookBack returns how far back charges of a key look for overrides, beyond the zone's own windows; 0 for no further.
func (f *InForce) LookBack(key string) time.Duration {
	now := f.current()
	if now == nil || now.back == nil {
		return 0
	}
	return now.back.LookBack(key)
}

// Misfits returns the records that do not fit the zone, and so are not applied.
func (f *InForce) Misfits() []overrides.Misfit {
	now := f.current()
	if now == nil {
		return nil
	}
	return now.misfits
}

// Misfit returns the record that a key would have if it fitted the zone; nil without one.
func (b *Book) Misfit(z *Subscriber, key string) *overrides.Misfit {
	misfits := z.InForce.Misfits()
	if len(misfits) == 0 {
		return nil
	}
	of := b.recordsOf(z)
	of.Fit = nil
	records := make([]overrides.Record, 0, len(misfits))
	for _, m := range misfits {
		records = append(records, *m.Record)
	}
	set, _ := overrides.Compile(records, of)
	rule := set.Find(key)
	for i := range misfits {
		if rule != nil && misfits[i].ID == rule.ID {
			return &misfits[i]
		}
	}
	return nil
}

// recordsOf returns what records of a zone have to fit.
func (b *Book) recordsOf(z *Subscriber) overrides.Target {
	of := z.Records(b.hasher)
	of.Clock = b.clock
	return of
}

// apply gives every zone its overrides. mu is held.
func (b *Book) apply(now time.Time) {
	for z := range b.zones {
		misfits := b.applyTo(z, now)
		metrics.OverridesNotApplied.WithLabelValues(b.name, z.Name).Set(float64(len(misfits)))
		for _, m := range misfits {
			b.warn(z, m)
		}
	}
}

// applyTo gives a zone its overrides, and returns those that do not fit. mu is held.
func (b *Book) applyTo(z *Subscriber, now time.Time) []overrides.Misfit {
	next := &snapshot{clock: b.clock}
	records := slices.DeleteFunc(slices.Clone(b.copy.Records), func(r overrides.Record) bool { return r.Zone != z.Name || r.Expired(now) })
	next.set, next.misfits = overrides.Compile(records, b.recordsOf(z))
	for _, r := range records {
		if r.Until != nil && (next.nextEnd == 0 || r.Until.UnixMilli() < next.nextEnd) {
			next.nextEnd = r.Until.UnixMilli()
		}
	}
	if quiet := b.changed.Add(Quiet); now.Before(quiet) {
		next.quietUntil = quiet.UnixMilli()
	}
	b.lookBack(z, next, now)
	if next.set == nil && next.misfits == nil && next.quietUntil == 0 && next.back == nil {
		next = nil
	}
	z.InForce.now.Store(next)
	if next == nil {
		return nil
	}
	return next.misfits
}

// warn tells once of a record that does not fit.
func (b *Book) warn(z *Subscriber, m overrides.Misfit) {
	id := m.ID + " " + m.Created.String() + " " + m.Err.Error()
	if b.warned[id] {
		return
	}
	if len(b.warned) > 2*overrides.MaxRecords {
		clear(b.warned)
	}
	b.warned[id] = true
	z.NotApplied.Inc()
	storestate.Logger(b.name).Warn("an override does not fit its zone, and is not applied", zap.String("zone", m.Zone), zap.String("id", m.ID), zap.Error(m.Err))
}

// Tidy removes from the zones records that have ended, and changes that all Caddys know by now. From Begin to End
// the book does so by itself now and then.
func (b *Book) Tidy(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	due := false
	b.tellEnded(now)
	b.copy.Past = withoutForgotten(slices.Clone(b.copy.Past), now)
	for z := range b.zones {
		if o := z.InForce.now.Load(); o != nil {
			ended := o.nextEnd != 0 && now.UnixMilli() >= o.nextEnd
			if ended {
				b.changed = now
			}
			due = due || ended || o.backEnd != 0 && now.UnixMilli() >= o.backEnd || o.quietUntil != 0 && (now.UnixMilli() >= o.quietUntil || now.Sub(b.changed) > Quiet) // the clock may step back
		}
	}
	if due {
		b.apply(now)
	}
}
