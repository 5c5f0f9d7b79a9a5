package slidingwindow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// overrideRefresh is the longest time between two looks at the overrides of a store.
	overrideRefresh = 2 * time.Second
	// overrideLook is how long a look at the store takes at most. App.Start and App.Stop wait for one,
	// and requests that are under way wait with them.
	overrideLook = time.Second
	// overrideQuiet is how long after a change no key takes a lease.
	overrideQuiet = 2*overrideRefresh + time.Second
)

// overrideSharer is implemented by stores that keep overrides for all Caddys that share them.
type overrideSharer interface {
	// ReadOverrides returns the version, and the records by their IDs unless known is the version.
	// The version is empty if no record was ever written, or if all are lost. It also returns what WriteEnforce has written.
	ReadOverrides(ctx context.Context, known string) (version string, records, orders map[string]string, err error)
	// WriteOverrides makes next the version if known is it, takes records out and writes others. It
	// returns the version that holds then. If known is empty, all records are replaced.
	WriteOverrides(ctx context.Context, known, next string, gone []string, records map[string]string) (version string, err error)
	// WriteEnforce writes orders by the names of zones, and keeps them for a time.
	WriteEnforce(ctx context.Context, orders map[string]string, keep time.Duration) error
	// HashesKeys reports whether the store keeps the HMACs of keys, which HashKey makes.
	HashesKeys() bool
	overrides.Hasher
}

// overrideBook holds the overrides of a store in this process.
type overrideBook struct {
	name   string
	shared overrideSharer   // nil: this process has its own
	hasher overrides.Hasher // nil: keys are kept as they are

	changes sync.Mutex // held for a change, whatever it waits for; before mu

	mu       sync.Mutex // guards all below
	copy     overridestore.Copy
	past     []overrides.Record // have ended, see retire
	lost     bool               // the store has no version, though this Caddy knows one
	foreseen bool               // whether storage was asked before the first configuration ran
	storage  *overridestore.Place
	zones    map[*runningZone]struct{}
	changed  time.Time       // when the zones got other records
	warned   map[string]bool // misfits that the log has, by record and reason
	runs     int             // configurations
	stop     context.CancelFunc
	ended    *sync.WaitGroup
}

func newOverrideBook(store window.Store) *overrideBook {
	b := &overrideBook{
		name: strings.ToValidUTF8(store.String(), "\uFFFD"), zones: make(map[*runningZone]struct{}), warned: make(map[string]bool),
	}
	if shared, ok := store.(overrideSharer); ok {
		b.shared = shared
		if shared.HashesKeys() {
			b.hasher = shared
		}
	}
	return b
}

// begin has the overrides hold in zones that run from now on. Those of a store are read first, which
// takes as long as the store waits for its server at most.
func (b *overrideBook) begin(zones []*runningZone, storage overridestore.Storage) {
	b.changes.Lock()
	defer b.changes.Unlock()
	b.mu.Lock()
	b.runs++
	first := b.runs == 1
	b.storage = overridestore.New(storage, b.name, b.shared != nil)
	kept := b.copy.Version
	own := b.storage
	for _, z := range zones {
		b.zones[z] = struct{}{}
	}
	b.mu.Unlock()
	if kept == "" {
		b.load(own)
	}
	b.mu.Lock()
	metrics.OverridesHeld.WithLabelValues(b.name).Set(float64(len(b.copy.Records)))
	b.apply(time.Now())
	b.mu.Unlock()
	if !first {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.ended = cancel, new(sync.WaitGroup)
	if b.shared != nil {
		b.look(ctx)
	}
	b.ended.Go(func() { b.run(ctx) })
}

// foresee gives a zone what is known, until it runs: sites can serve before the app starts. If
// nothing is known yet, that is what Caddy's storage has.
func (b *overrideBook) foresee(z *runningZone, storage overridestore.Storage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.copy.Version == "" && !b.foreseen {
		b.foreseen = true
		if kept, err := overridestore.New(storage, b.name, b.shared != nil).Load(); err == nil { // else begin tells
			b.copy = kept
		}
	}
	if len(b.copy.Records)+len(b.past) > 0 {
		b.applyTo(z, time.Now())
	}
}

// load takes up what Caddy's storage has.
func (b *overrideBook) load(storage *overridestore.Place) {
	kept, err := storage.Load()
	if err != nil {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "storage").Inc()
		storestate.Logger(b.name).Warn("overrides could not be read from Caddy's storage; those that the store has hold", zap.Error(err))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.copy = kept
}

// end undoes begin.
func (b *overrideBook) end(zones []*runningZone) {
	b.changes.Lock()
	defer b.changes.Unlock()
	b.mu.Lock()
	for _, z := range zones {
		delete(b.zones, z)
	}
	b.forgetMisfits(zones)
	b.runs--
	last := b.runs == 0
	b.mu.Unlock()
	if last {
		b.stop()
		b.ended.Wait()
	}
}

// forgetMisfits has no gauge tell of zones that have ended, unless others of their name run. mu is held.
func (b *overrideBook) forgetMisfits(ended []*runningZone) {
	names := make(map[string]bool)
	for z := range b.zones {
		names[z.zone.Name] = true
	}
	for _, z := range ended {
		if !names[z.zone.Name] {
			metrics.OverridesNotApplied.DeleteLabelValues(b.name, z.zone.Name)
		}
	}
}

// run looks at the store now and then, and at what has ended.
func (b *overrideBook) run(ctx context.Context) {
	for {
		wait := time.NewTimer(overrideRefresh - rand.N(overrideRefresh/4)) //nolint:gosec // spreads load
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		if b.shared != nil {
			b.look(ctx)
		}
		b.tidy(time.Now())
	}
}

// look takes up what the store has, if that has changed. While the store is away the last copy stays.
func (b *overrideBook) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, overrideLook)
	defer cancel()
	b.mu.Lock()
	known := b.copy.Version
	b.mu.Unlock()
	version, records, orders, err := b.shared.ReadOverrides(ctx, known)
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if err != nil {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "away").Inc()
		return
	}
	b.follow(ctx, orders)
	if records == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.copy.Version == known {
			b.note(version)
		}
		return
	}
	now := overridestore.Copy{Version: version, Read: time.Now()}
	for id, text := range records {
		var r overrides.Record
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.ID != id {
			continue // of another version of this plugin, or of somebody else
		}
		now.Records = append(now.Records, r)
	}
	b.mu.Lock()
	newer := b.copy.Version == known // else this Caddy has changed them in the meantime
	if newer {
		b.install(now)
	}
	b.mu.Unlock()
	if newer {
		b.keep(now)
	}
}

// note notes that the store has no other version than this Caddy, or none. mu is held.
func (b *overrideBook) note(version string) {
	b.copy.Read = time.Now()
	lost := version != b.copy.Version
	if lost && !b.lost {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "lost").Inc()
		storestate.Logger(b.name).Warn("the store has lost the overrides; the last ones stay in force; set one, or replace them, to write them again", zap.Int("overrides", len(b.copy.Records)))
	}
	b.lost = lost
}

// install has other records hold. mu is held.
func (b *overrideBook) install(c overridestore.Copy) {
	slices.SortFunc(c.Records, func(x, y overrides.Record) int { return strings.Compare(x.ID, y.ID) })
	b.retire(c.Records, time.Now())
	b.copy, b.lost, b.changed = c, false, time.Now()
	metrics.OverridesHeld.WithLabelValues(b.name).Set(float64(len(c.Records)))
	b.apply(b.changed)
}

// keep keeps what a store has for a start without it.
func (b *overrideBook) keep(c overridestore.Copy) {
	b.mu.Lock()
	storage := b.storage
	b.mu.Unlock()
	if err := storage.Save(c); err != nil {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "storage").Inc()
		storestate.Logger(b.name).Warn("overrides could not be kept in Caddy's storage; a start without the store would lack them", zap.Error(err))
	}
}

// apply gives every zone its overrides. mu is held.
func (b *overrideBook) apply(now time.Time) {
	for z := range b.zones {
		misfits := b.applyTo(z, now)
		metrics.OverridesNotApplied.WithLabelValues(b.name, z.zone.Name).Set(float64(len(misfits)))
		for _, m := range misfits {
			b.warn(z, m)
		}
	}
}

// applyTo gives a zone its overrides, and returns those that do not fit. mu is held.
func (b *overrideBook) applyTo(z *runningZone, now time.Time) []overrides.Misfit {
	next := &overridesNow{}
	records := slices.DeleteFunc(slices.Clone(b.copy.Records), func(r overrides.Record) bool { return r.Zone != z.zone.Name || r.Expired(now) })
	next.set, next.misfits = overrides.Compile(records, z.zone.forOverrides(b.hasher))
	for _, r := range records {
		if r.Until != nil && (next.nextEnd == 0 || r.Until.UnixMilli() < next.nextEnd) {
			next.nextEnd = r.Until.UnixMilli()
		}
	}
	if quiet := b.changed.Add(overrideQuiet); now.Before(quiet) {
		next.quietUntil = quiet.UnixMilli()
	}
	b.lookBack(z, next, now)
	if next.set == nil && next.misfits == nil && next.quietUntil == 0 && next.back == nil {
		next = nil
	}
	z.zone.overrides.now.Store(next)
	if next == nil {
		return nil
	}
	return next.misfits
}

// warn tells once of a record that does not fit.
func (b *overrideBook) warn(z *runningZone, m overrides.Misfit) {
	id := m.ID + " " + m.Created.String() + " " + m.Err.Error()
	if b.warned[id] {
		return
	}
	if len(b.warned) > 2*overrides.MaxRecords {
		clear(b.warned)
	}
	b.warned[id] = true
	z.zone.counters.Misfits.Inc()
	storestate.Logger(b.name).Warn("an override does not fit its zone, and is not applied", zap.String("zone", m.Zone), zap.String("id", m.ID), zap.Error(m.Err))
}

// tidy has the zones forget records that have ended, and changes that all Caddys know by now.
func (b *overrideBook) tidy(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	due := false
	b.past = forget(b.past, now)
	for z := range b.zones {
		if o := z.zone.overrides.now.Load(); o != nil {
			ended := o.nextEnd != 0 && now.UnixMilli() >= o.nextEnd
			if ended {
				b.changed = now
			}
			due = due || ended || o.backEnd != 0 && now.UnixMilli() >= o.backEnd || o.quietUntil != 0 && (now.UnixMilli() >= o.quietUntil || now.Sub(b.changed) > overrideQuiet) // the clock may step back
		}
	}
	if due {
		b.apply(now)
	}
}

// Errors of a change.
var (
	errOverridesChanged = errors.New("the overrides have changed since they were read; list them, and try again")
	errOverridesFull    = fmt.Errorf("there would be more than %d overrides; delete some, or use limits with placeholders for more customers than that", overrides.MaxRecords)
)

// current returns what this Caddy knows: with a store that is away, the last copy.
func (b *overrideBook) current() (c overridestore.Copy, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.copy, b.lost
}

// change has other records hold, here and in the store, and returns them. A version that is not empty must be
// that of the records which edit gets.
func (b *overrideBook) change(ctx context.Context, version string, edit func([]overrides.Record) ([]overrides.Record, error)) (overridestore.Copy, error) {
	b.changes.Lock()
	defer b.changes.Unlock()
	for range 5 {
		if b.shared != nil {
			b.look(ctx)
		}
		before, lost := b.current()
		if version != "" && version != before.Version {
			return before, errOverridesChanged
		}
		next := overridestore.Copy{Version: nextVersion(before.Version), Read: time.Now()}
		var err error
		live := slices.DeleteFunc(slices.Clone(before.Records), func(r overrides.Record) bool { return r.Expired(next.Read) })
		if next.Records, err = edit(live); err != nil {
			return before, err
		}
		if len(next.Records) > overrides.MaxRecords {
			return before, errOverridesFull
		}
		written, err := b.write(ctx, before, next, lost)
		if err != nil {
			return before, err
		}
		if written {
			b.mu.Lock()
			b.install(next)
			b.mu.Unlock()
			if b.shared != nil {
				b.keep(next)
			}
			return next, nil
		}
	}
	return overridestore.Copy{}, errOverridesChanged
}

// write keeps what is next. It reports false if others have changed the records.
func (b *overrideBook) write(ctx context.Context, before, next overridestore.Copy, lost bool) (bool, error) {
	if b.shared == nil {
		b.mu.Lock()
		storage := b.storage
		b.mu.Unlock()
		if err := storage.Save(next); err != nil {
			metrics.OverrideErrorsTotal.WithLabelValues(b.name, "storage").Inc()
			return false, fmt.Errorf("%w: writing to Caddy's storage: %w", window.ErrUnavailable, err)
		}
		return true, nil
	}
	known, old := before.Version, textsOf(before.Records)
	if lost || known == "" {
		known, old = "", nil
	}
	records := textsOf(next.Records)
	var gone []string
	for id, text := range old {
		if now, ok := records[id]; !ok {
			gone = append(gone, id)
		} else if now == text {
			delete(records, id)
		}
	}
	version, err := b.shared.WriteOverrides(ctx, known, next.Version, gone, records)
	return version == next.Version, err
}

// textsOf returns records as a store keeps them, by their IDs.
func textsOf(records []overrides.Record) map[string]string {
	texts := make(map[string]string, len(records))
	for i := range records {
		text, _ := json.Marshal(&records[i]) // checked when it was set
		texts[records[i].ID] = string(text)
	}
	return texts
}

// nextVersion returns a version that no other Caddy chooses, and that has a higher number.
func nextVersion(version string) string {
	number, _, _ := strings.Cut(version, "-")
	n, _ := strconv.ParseUint(number, 10, 63)
	return strconv.FormatUint(n+1, 10) + "-" + strconv.FormatUint(uint64(rand.Uint32()), 36) //nolint:gosec // tells apart, keeps no secret
}
