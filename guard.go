package slidingwindow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/settler"
	"github.com/slidingwindow/caddy-sliding-window/internal/shadow"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/uptime"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/fallback"
)

// StoreModule is what a module in the namespace http.sliding_window.stores
// implements. Configurations that mean the same store must get the same
// window.Store, for counts and connections to outlive a reload, and may still use it
// for a while after the module's Cleanup: Caddy does not wait for requests.
type StoreModule interface {
	Store() window.Store
}

// The words for what happens while the store is away.
const (
	onErrorLocal = "local"
	onErrorAllow = "allow"
	onErrorDeny  = "deny"
)

// checkShare refuses share without on_error local: without it nothing is decided locally.
func checkShare(onError string, share bool) error {
	if share && onError != onErrorLocal {
		return fmt.Errorf("share and on_error %s cannot be combined; write on_error local { share }, or take share out", onError)
	}
	return nil
}

// guard is a store with what protects requests from its absence. There is one
// for each store, as long as any configuration uses it.
type guard struct {
	store    window.Store
	fallback *fallback.Guard // nil for a store that cannot be away

	seconds, localSeconds prometheus.Observer
	away, busy            prometheus.Counter // of errors, by reason
	refused, foreign      prometheus.Counter // of errors, by reason

	foreignLog uptime.Rare
	outages    *storestate.Outages // nil for a store that cannot be away
	lookout    *storestate.Lookout // nil for a store that cannot be away

	// Receipts that are not settled yet keep the guard open. So do the configurations that use
	// it, which count as one in unsettled.
	settler   *settler.Settler
	unsettled atomic.Int64
	closed    atomic.Bool

	shadow    shadow.Slot
	overrides *overridebook.Book
}

var guards = caddy.NewUsagePool()

// counts pools local counts by store name. Stores of one name and one secret share counters,
// so that a reload that changes, say, the timeout keeps the counts.
var counts = caddy.NewUsagePool()

type sharedCounts struct{ *fallback.Counts }

// Destruct implements caddy.Destructor.
func (c sharedCounts) Destruct() error { return c.Close() }

func acquireCounts(name string) *fallback.Counts {
	value, _, _ := counts.LoadOrNew(name, func() (caddy.Destructor, error) { return sharedCounts{fallback.NewCounts()}, nil })
	return value.(sharedCounts).Counts
}

// acquireGuard returns the guard of a module's store, for a handler that decides locally while
// that is away, or does not. Release it with releaseGuard.
func acquireGuard(module StoreModule, local bool) *guard {
	store := module.Store()
	value, _, _ := guards.LoadOrNew(store, func() (caddy.Destructor, error) {
		name := strings.ToValidUTF8(store.String(), "\uFFFD") // else a label panics, which locks the pool
		g := &guard{store: store, seconds: metrics.DecisionSeconds.WithLabelValues(name), overrides: overridebook.New(store)}
		g.unsettled.Add(1)
		if m, ok := module.(ShadowModule); ok {
			g.shadow.Open = m.ShadowStore
		}
		if away, ok := store.(fallback.Store); ok {
			g.away = metrics.StoreErrorsTotal.WithLabelValues(name, "away")
			g.busy = metrics.StoreErrorsTotal.WithLabelValues(name, "busy")
			g.refused = metrics.StoreErrorsTotal.WithLabelValues(name, "refused")
			g.foreign = metrics.StoreErrorsTotal.WithLabelValues(name, "foreign")
			g.localSeconds = metrics.DecisionSeconds.WithLabelValues("local")
			g.outages = storestate.NewOutages(name, store, true)
			g.fallback = fallback.New(away, fallback.Options{OnChange: g.outages.Changed, OnPing: g.outages.Pinged, Counts: acquireCounts(store.String())})
			g.lookout = storestate.NewLookout(name, store, g.fallback)
			g.shadow.Crew = g.fallback
		}
		g.settler = settler.New(store, g.fallback, g.hold, g.release)
		return g, nil
	})
	g := value.(*guard)
	if local && g.fallback != nil {
		g.fallback.Use()
	}
	return g
}

func releaseGuard(g *guard, local bool) {
	if local && g.fallback != nil {
		g.fallback.Disuse()
	}
	_, _ = guards.Delete(g.store) // Destruct returns no error
}

// Destruct implements caddy.Destructor.
func (g *guard) Destruct() error {
	if g.lookout != nil {
		g.lookout.End()
	}
	g.settler.Drain(drainLast)
	err := g.shadow.Close()
	g.closeUnlessHeld()
	return err
}

// drainLast is the longest that a reload waits for units that are being given back.
const drainLast = time.Second

// hold has the guard and its store stay open for a receipt.
func (g *guard) hold(c *window.Charge) {
	g.unsettled.Add(1)
	if s, ok := g.store.(engine.Holder); ok {
		s.Hold(time.Duration(window.Longest(c)) * time.Millisecond)
	}
}

// release undoes hold.
func (g *guard) release() {
	if s, ok := g.store.(engine.Holder); ok {
		s.Release()
	}
	g.closeUnlessHeld()
}

// closeUnlessHeld closes the guard when no configuration and no receipt needs it any more. Requests
// may still come late, and get receipts: it is closed once.
func (g *guard) closeUnlessHeld() {
	if g.unsettled.Add(-1) > 0 || g.fallback == nil || g.closed.Swap(true) {
		return
	}
	_ = g.fallback.Close() // it returns no error of its own
	g.outages.End()
	_, _ = counts.Delete(g.store.String()) // as releaseGuard
}

// take asks the store, unless it is known to be away.
func (g *guard) take(ctx context.Context, charges []window.Charge, room []window.Decision) ([]window.Decision, error) {
	start := uptime.Now()
	if g.fallback == nil {
		ds, err := engine.TakeInto(ctx, g.store, room, charges)
		g.seconds.Observe((uptime.Now() - start).Seconds())
		return ds, err
	}
	ds, err := g.fallback.TakeInto(ctx, room, charges)
	switch {
	case err == nil:
		g.seconds.Observe((uptime.Now() - start).Seconds())
	case errors.Is(err, window.ErrBusy):
		g.busy.Inc()
	case errors.Is(err, window.ErrForeign):
		g.foreign.Inc()
		g.logForeign(charges, err)
	case errors.Is(err, window.ErrRefused):
		g.refused.Inc()
	case ctx.Err() == nil:
		g.away.Inc()
	}
	return ds, err
}

// logForeign logs the zones whose key holds other data, which only an operator can remove.
// It logs once a minute at most: clients may ask for the counter at any rate.
func (g *guard) logForeign(charges []window.Charge, cause error) {
	if !g.foreignLog.Due(time.Minute) {
		return
	}
	zones := make([]string, len(charges))
	for i := range charges {
		zones[i] = charges[i].Zone
	}
	storestate.Logger(g.store.String()).Error("the key of a counter holds other data; on_error decides on its requests until it is removed",
		zap.Strings("zones", zones), zap.Error(cause))
}

// takeLocal decides on this instance's own counts, because of an error of the store. The units
// of charges whose index is in unsettled are owed to the store only once they are settled.
func (g *guard) takeLocal(ctx context.Context, charges []window.Charge, cause error, share bool, unsettled []int) ([]window.Decision, error) {
	start := uptime.Now()
	ds, err := g.fallback.TakeLocal(ctx, charges, cause, share, unsettled...)
	g.localSeconds.Observe((uptime.Now() - start).Seconds())
	return ds, err
}

// peek says what the next request with these charges meets, and what decides; nothing is spent. The cause
// is why the store did not decide, if local counts did in its place.
func (g *guard) peek(ctx context.Context, charges []window.Charge, local, share bool) (ds []window.Decision, by engine.Source, cause, err error) {
	if g.fallback == nil {
		ds, err = g.store.Peek(ctx, charges)
		return ds, engine.SourceStore, nil, err
	}
	ds, by, err = g.fallback.Peek(ctx, charges)
	if err == nil || !local || !errors.Is(err, window.ErrUnavailable) || ctx.Err() != nil {
		return ds, by, nil, err
	}
	cause = err
	ds, err = g.fallback.PeekLocal(charges, share)
	return ds, engine.SourceLocal, cause, err
}

// peekShadow is peek for charges that deny nobody. A store without a server keeps such counts apart.
func (g *guard) peekShadow(ctx context.Context, charges []window.Charge, local, share bool) (ds []window.Decision, by engine.Source, cause, err error) {
	if g.fallback == nil {
		if ds, ok, err := g.shadow.Peek(ctx, charges); ok {
			return ds, engine.SourceStore, nil, err
		}
	}
	return g.peek(ctx, charges, local, share)
}

// reset forgets the history of a charge's counter. While the store is away it is not done, and the
// store is told when it is back.
func (g *guard) reset(ctx context.Context, c window.Charge) (done bool, err error) {
	if g.fallback == nil {
		if err = g.store.Reset(ctx, c); err == nil {
			err = g.shadow.Reset(ctx, c)
		}
		return err == nil, err
	}
	return g.fallback.Reset(ctx, c)
}
