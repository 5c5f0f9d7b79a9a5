// Package openstore holds the stores that handlers use, and protects requests while a store is away.
package openstore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/settler"
	"github.com/slidingwindow/caddy-sliding-window/internal/shadow"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// SharedStore is a store with what protects requests from its absence. There is one for each
// [window.Store], as long as any configuration uses it.
type SharedStore struct {
	Raw       window.Store   // without protection
	ID        engine.StoreID // what it shares counters by
	Settler   *settler.Settler
	Shadow    shadow.Slot
	Overrides *overridebook.Book
	Bans      *banbook.Book

	fallback *fallback.Guard // nil for a store that cannot be away

	seconds, localSeconds prometheus.Observer
	away, busy            prometheus.Counter // of errors, by reason
	refused, foreign      prometheus.Counter // of errors, by reason

	foreignLog uptime.Rare
	outages    *storestate.Outages // nil for a store that cannot be away
	monitor    *storestate.Monitor // nil for a store that cannot be away

	// Receipts that are not settled yet and requests that hold units keep the store open. So do the configurations that use
	// it, which count as one in unsettled.
	unsettled atomic.Int64
	closed    atomic.Bool
}

var stores = caddy.NewUsagePool()

// counts pools local counts by [engine.StoreID]: a reload that changes, say, the timeout keeps the counts.
var counts = caddy.NewUsagePool()

type sharedCounts struct{ *fallback.Counts }

// Destruct implements caddy.Destructor.
func (c sharedCounts) Destruct() error { return c.Close() }

func acquireCounts(id engine.StoreID) *fallback.Counts {
	value, _, _ := counts.LoadOrNew(id, func() (caddy.Destructor, error) { return sharedCounts{fallback.NewCounts()}, nil })
	return value.(sharedCounts).Counts
}

// Acquire returns the Store of a store, for a handler that decides locally while that is away, or does
// not. The function shadow opens a store for what is counted without denying; it may be nil. Undo
// Acquire with Release.
func Acquire(store window.Store, shadow func() window.Store, local bool) *SharedStore {
	value, _, _ := stores.LoadOrNew(store, func() (caddy.Destructor, error) {
		name := strings.ToValidUTF8(store.String(), "\uFFFD") // else a label panics, which locks the pool
		s := &SharedStore{Raw: store, ID: identify(store), seconds: metrics.DecisionSeconds.WithLabelValues(name), Overrides: overridebook.New(store)}
		s.Bans = banbook.New(store, s.ID)
		s.unsettled.Add(1)
		s.Shadow.Open = shadow
		_, s.Shadow.Inline = store.(engine.Stepper)
		if away, ok := store.(fallback.Store); ok {
			s.away = metrics.StoreErrorsTotal.WithLabelValues(name, "away")
			s.busy = metrics.StoreErrorsTotal.WithLabelValues(name, "busy")
			s.refused = metrics.StoreErrorsTotal.WithLabelValues(name, "refused")
			s.foreign = metrics.StoreErrorsTotal.WithLabelValues(name, "foreign")
			s.localSeconds = metrics.DecisionSeconds.WithLabelValues("local")
			s.outages = storestate.NewOutages(name, store)
			s.fallback = fallback.New(away, fallback.Options{OnChange: s.outages.Changed, OnPing: s.outages.Pinged, Counts: acquireCounts(s.ID)})
			s.monitor = storestate.NewMonitor(name, store, s.fallback)
			s.Shadow.Presence, s.Shadow.Outages = s.fallback, s.outages
		}
		s.Settler = settler.New(store, s.fallback, s.hold, s.release)
		return s, nil
	})
	s := value.(*SharedStore)
	if local && s.fallback != nil {
		s.fallback.EnableLocal()
	}
	return s
}

// Release undoes Acquire with the same local.
func (s *SharedStore) Release(local bool) {
	if local && s.fallback != nil {
		s.fallback.DisableLocal()
	}
	_, _ = stores.Delete(s.Raw) // Destruct returns no error
}

// Name returns the name of the store, which tells it apart in logs, metrics and the admin API.
func (s *SharedStore) Name() string { return s.ID.Name }

// IsRemote reports whether the store can be away. Then local counts can decide.
func (s *SharedStore) IsRemote() bool { return s.fallback != nil }

// Watch looks at the server of the store from now on, until the store is closed.
func (s *SharedStore) Watch() {
	if s.monitor != nil {
		s.monitor.Begin()
	}
}

// Join announces this instance on a remote store, until Leave.
func (s *SharedStore) Join() { s.fallback.Join() }

// Leave undoes Join.
func (s *SharedStore) Leave() { s.fallback.Leave() }

// Instances returns how many instances were last seen to share a remote store; 1 if none were.
func (s *SharedStore) Instances() int64 { return s.fallback.Instances() }

// Members returns which instances share a remote store; nil while it is away, and if they are not counted.
func (s *SharedStore) Members(ctx context.Context) (all []control.Member) {
	lister, ok := s.Raw.(engine.InstanceLister)
	if !ok || s.fallback.Counted() == 0 || len(s.outages.Away()) > 0 {
		return nil
	}
	instances, _ := lister.Instances(ctx) // nil: what asks the store for decisions tells why
	for _, i := range instances {
		all = append(all, control.Member{Name: i.Name, Own: i.Own, Silent: i.Silent.Seconds()})
	}
	return all
}

// Holders returns which instances hold units of a charge with window.Concurrent, and for how long.
func (s *SharedStore) Holders(ctx context.Context, c window.Charge) []control.Holder {
	var totals []engine.Total
	switch store := s.Raw.(type) {
	case engine.TotalsLister:
		totals, _ = store.Totals(ctx, c) // nil: what has decided on the charge tells why
	case interface {
		Held(window.Charge) (int64, time.Duration)
	}:
		if units, age := store.Held(c); units > 0 {
			totals = []engine.Total{{Units: units, Age: age}}
		}
	}
	all := []control.Holder{}
	for _, t := range totals {
		all = append(all, control.Holder{Name: t.Instance, Held: t.Units, Age: t.Age.Seconds(), Silent: t.Silent.Seconds()})
	}
	return all
}

// Unsettled returns how many receipts are not settled yet, with the units that requests hold.
func (s *SharedStore) Unsettled() int64 { return s.unsettled.Load() - 1 }

// State returns how the store is, for the admin API. The overrides are not in it.
func (s *SharedStore) State() control.StoreInfo {
	state := control.StoreInfo{Name: s.Name(), State: control.StateOK}
	if k, ok := s.Raw.(interface{ Keys() int64 }); ok {
		keys := k.Keys()
		state.Keys = &keys
	}
	if s.fallback == nil {
		return state
	}
	state.Instances = s.fallback.Counted()
	for part, o := range s.outages.Away() {
		since := o.Since.UTC().Format(time.RFC3339)
		if part == "" {
			state.State, state.Since, state.Cause = control.StateAway, since, o.Cause.Error()
			continue
		}
		state.Nodes = append(state.Nodes, control.Node{Name: part, Since: since, Cause: o.Cause.Error()})
	}
	slices.SortFunc(state.Nodes, func(a, b control.Node) int { return cmp.Compare(a.Name, b.Name) })
	return state
}

// Destruct implements caddy.Destructor.
func (s *SharedStore) Destruct() error {
	if s.monitor != nil {
		s.monitor.End()
	}
	s.Settler.Drain(DrainLast)
	err := s.Shadow.Close()
	s.Bans.Close()
	s.closeUnlessHeld()
	return err
}

// DrainLast is the longest that a reload waits for units that are being given back.
const DrainLast = time.Second

// hold keeps the store open for a receipt.
func (s *SharedStore) hold(c *window.Charge) {
	s.holdFor(time.Duration(c.Longest()) * time.Millisecond)
}

// Hold keeps the store open for the units that a request holds, until Free.
func (s *SharedStore) Hold() { s.holdFor(math.MaxInt64) }

// Free gives back the units of a charge with window.Concurrent, wherever they were admitted, and undoes Hold. It waits for no
// server.
func (s *SharedStore) Free(c window.Charge) {
	if s.fallback != nil {
		s.fallback.Free(c)
	} else {
		_ = s.Raw.GiveBack(context.Background(), c, 0, c.Cost) // it was checked when it was admitted
	}
	s.release()
}

func (s *SharedStore) holdFor(longest time.Duration) {
	s.unsettled.Add(1)
	if h, ok := s.Raw.(engine.Holder); ok {
		h.Hold(longest)
	}
}

// release undoes hold, or Hold.
func (s *SharedStore) release() {
	if h, ok := s.Raw.(engine.Holder); ok {
		h.Release()
	}
	s.closeUnlessHeld()
}

// closeUnlessHeld closes the store when no configuration, no receipt and no request that holds units needs it any more. Requests
// may still come late, and get receipts: it is closed once.
func (s *SharedStore) closeUnlessHeld() {
	if s.unsettled.Add(-1) > 0 || s.fallback == nil || s.closed.Swap(true) {
		return
	}
	_ = s.fallback.Close() // it returns no error of its own
	s.outages.End()
	_, _ = counts.Delete(s.ID) // as Release
	forget(s.ID, s.Raw)
}

// Take asks the store, unless it is known to be away.
func (s *SharedStore) Take(ctx context.Context, charges []window.Charge, room []window.Decision) ([]window.Decision, error) {
	start := uptime.Now()
	if s.fallback == nil {
		ds, err := engine.TakeInto(ctx, s.Raw, room, charges)
		s.seconds.Observe((uptime.Now() - start).Seconds())
		return ds, err
	}
	ds, err := s.fallback.TakeInto(ctx, room, charges)
	switch {
	case err == nil:
		s.seconds.Observe((uptime.Now() - start).Seconds())
	case errors.Is(err, window.ErrBusy):
		s.busy.Inc()
	case errors.Is(err, window.ErrForeign):
		s.foreign.Inc()
		s.logForeign(charges, err)
	case errors.Is(err, window.ErrRefused):
		s.refused.Inc()
	case ctx.Err() == nil:
		s.away.Inc()
	}
	return ds, err
}

// logForeign logs the zones whose key holds other data, which only an operator can remove.
// It logs once a minute at most: clients may ask for the counter at any rate.
func (s *SharedStore) logForeign(charges []window.Charge, cause error) {
	if !s.foreignLog.Due(time.Minute) {
		return
	}
	zones := make([]string, len(charges))
	for i := range charges {
		zones[i] = charges[i].Zone
	}
	storestate.Logger(s.Name()).Error("the key of a counter holds other data; on_error decides on its requests until it is removed",
		zap.Strings("zones", zones), zap.Error(cause))
}

// TakeLocal decides on this instance's own counts, because of an error of the store. The units
// of charges whose index is in unsettled are owed to the store only once they are settled.
func (s *SharedStore) TakeLocal(ctx context.Context, charges []window.Charge, cause error, share bool, unsettled []int) ([]window.Decision, error) {
	start := uptime.Now()
	ds, err := s.fallback.TakeLocal(ctx, charges, cause, share, unsettled...)
	s.localSeconds.Observe((uptime.Now() - start).Seconds())
	return ds, err
}

// Peek says what the next request with these charges meets, and what decides; nothing is spent. The cause
// is why the store did not decide, if local counts did in its place.
func (s *SharedStore) Peek(ctx context.Context, charges []window.Charge, local, share bool) (ds []window.Decision, by engine.Source, cause, err error) {
	if s.fallback == nil {
		ds, err = s.Raw.Peek(ctx, charges)
		return ds, engine.SourceStore, nil, err
	}
	return s.fallback.Peek(ctx, charges, local, share)
}

// AnswerLocally returns what Take would decide, as far as this process knows it: nothing is spent, no server is asked. It
// returns nil if Take would have to ask.
func (s *SharedStore) AnswerLocally(ctx context.Context, charges []window.Charge, local, share bool) []window.Decision {
	if s.fallback != nil {
		return s.fallback.AnswerLocally(charges, local, share)
	}
	ds, err := s.Raw.Peek(ctx, charges)
	if err != nil {
		return nil
	}
	return ds
}

// Foresee returns what would decide on charges now in place of the store's server, which is not asked.
func (s *SharedStore) Foresee(charges []window.Charge) engine.Source {
	if s.fallback == nil {
		return engine.SourceStore
	}
	return s.fallback.Foresee(charges)
}

// PeekShadow is Peek for charges that deny no request. A store without a server keeps such counts apart.
func (s *SharedStore) PeekShadow(ctx context.Context, charges []window.Charge, local, share bool) (ds []window.Decision, by engine.Source, cause, err error) {
	if s.fallback == nil {
		if ds, ok, err := s.Shadow.Peek(ctx, charges); ok {
			return ds, engine.SourceStore, nil, err
		}
	}
	return s.Peek(ctx, charges, local, share)
}

// Reset forgets the history of a charge's counter. While the store is away, the reset waits until the store is back.
func (s *SharedStore) Reset(ctx context.Context, c window.Charge) (done bool, err error) {
	if s.fallback == nil {
		if err = s.Raw.Reset(ctx, c); err == nil {
			err = s.Shadow.Reset(ctx, c)
		}
		return err == nil, err
	}
	return s.fallback.Reset(ctx, c)
}
