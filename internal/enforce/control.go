package enforce

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/storeclock"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/recent"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
)

// Control is how a zone is enforced, if an operator says so while Caddy runs. It outlives
// reloads, and is the same for all handlers with the zone.
type Control struct {
	Sync
	// Shadow returns what counts requests that the zone may not deny.
	Shadow func() metrics.ShadowCounters

	zone    engine.ZoneID
	clock   *storeclock.Clock
	setting atomic.Pointer[Setting]  // nil: as configured
	shadow  atomic.Pointer[counters] // nil: Shadow was not called
}

// Setting is how a zone is enforced until a time, and why.
type Setting struct {
	Percent int64
	Until   time.Time
	control.Why
}

// counters are those of Shadow, and what they were when this Control first used them.
type counters struct {
	metrics.ShadowCounters
	before recent.Counts
}

// Destruct implements caddy.Destructor.
func (*Control) Destruct() error { return nil }

type part struct{}

// Of returns the Control of the zone of a hold.
func Of(h *zonepool.Hold) *Control {
	return zonepool.Get(h, part{}, func() *Control {
		c := &Control{zone: h.Zone, clock: storeclock.Of(h.Zone.Store.Name)}
		c.Shadow = sync.OnceValue(func() metrics.ShadowCounters {
			shadow := metrics.NewShadowCounters(c.zone.Zone)
			c.shadow.Store(&counters{shadow, shadow.Counts()})
			return shadow
		})
		return c
	})
}

// ShadowCounts returns what Shadow has counted since it was first called.
func (c *Control) ShadowCounts() recent.Counts {
	s := c.shadow.Load()
	if s == nil {
		return recent.Counts{}
	}
	return s.Counts().Minus(s.before)
}

// Clock returns what the end of a setting goes by: the clock of the store.
func (c *Control) Clock() *storeclock.Clock { return c.clock }

// Set has the zone enforced in a way until a time.
func (c *Control) Set(s Setting) { c.setting.Store(&s) }

// Reset has the zone enforced as it is configured.
func (c *Control) Reset() { c.setting.Store(nil) }

// Current returns what is set, or nil if nothing is or its time is over.
func (c *Control) Current() *Setting {
	if c.setting.Load() == nil { // as for most requests: the compiler inlines this
		return nil
	}
	return c.unlessOver()
}

// unlessOver returns what is set. If its time is over, it returns nil, and the first call emits an event.
func (c *Control) unlessOver() *Setting {
	set := c.setting.Load()
	if set == nil || c.clock.Now().Before(set.Until) {
		return set
	}
	if c.setting.CompareAndSwap(set, nil) {
		c.Logger().Info("enforcement of zone has ended: its time is over, and the zone does what is configured",
			append([]zap.Field{zap.String("was", Word(set.Percent))}, set.Fields()...)...)
		c.Emit(Config, "", control.Why{Reason: "its time is over"})
	}
	return nil
}

// Logger returns one that names the zone.
func (c *Control) Logger() *zap.Logger {
	return storestate.Logger(c.zone.Store.Name).With(zap.String("zone", c.zone.Zone))
}

// Emit sends the event that says how the zone is enforced now.
func (c *Control) Emit(word, until string, w control.Why) {
	events.Emit(events.Enforce, map[string]any{"zone": c.zone.Zone, "store": c.zone.Store.Name, "enforce": word, "until": until, "by": w.By, "reason": w.Reason})
}
