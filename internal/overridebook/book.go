// Package overridebook holds the overrides of a store in this process, and keeps them the same on all Caddys.
package overridebook

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
	"github.com/slidingwindow/caddy-sliding-window/internal/storeclock"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// refresh is the longest time between two looks at the overrides of a store.
	refresh = 2 * time.Second
	// longestLook is how long a look at the store takes at most. App.Start and App.Stop wait for one,
	// and requests that are under way wait with them.
	longestLook = time.Second
	// notable is by how much a clock has to move before the zones look again at what has ended.
	notable = time.Second / 4
	// Quiet is how long after a change no key takes a lease.
	Quiet = 2*refresh + time.Second
)

// Sharer is implemented by stores that keep overrides for all Caddys that share them.
type Sharer interface {
	// ReadOverrides returns the version, and the records by their IDs unless known is the version.
	// The version is empty if no record was ever written, or if all are lost.
	ReadOverrides(ctx context.Context, known string) (version string, records map[string]string, err error)
	// WriteOverrides makes next the version if known is it, takes records out and writes others. It
	// returns the version that holds then. If known is empty, all records are replaced.
	WriteOverrides(ctx context.Context, known, next string, gone []string, records map[string]string) (version string, err error)
	// ExchangeOrders writes next, orders by the names of zones, unless the store has another order for a zone than
	// known has, and keeps all orders for a time. It returns those that the store has then, and the store's time.
	ExchangeOrders(ctx context.Context, known, next map[string]string, keep time.Duration) (now time.Time, orders map[string]string, err error)
	// HashesKeys reports whether the store keeps the HMACs of keys, which HashKey makes.
	HashesKeys() bool
	overrides.Hasher
}

// Book holds the overrides of a store in this process.
type Book struct {
	name   string
	clock  *storeclock.Clock
	shared Sharer           // nil: this process has its own
	hasher overrides.Hasher // nil: keys are kept as they are

	changes sync.Mutex // held for a change, whatever it waits for; before mu

	mu       sync.Mutex // guards all below
	copy     overridestore.Copy
	lost     bool // the store has no version, though this Caddy knows one
	foreseen bool // whether storage was asked before the first configuration ran
	storage  *overridestore.Place
	zones    map[*Zone]struct{}
	changed  time.Time       // when the zones got other records
	warned   map[string]bool // misfits that the log has, by record and reason
	runs     int             // configurations
	stop     context.CancelFunc
	ended    *sync.WaitGroup
}

// New returns the book of a store. It holds nothing, and does nothing by itself, before Begin.
func New(store window.Store) *Book {
	name := strings.ToValidUTF8(store.String(), "\uFFFD")
	b := &Book{name: name, clock: storeclock.Of(name), zones: make(map[*Zone]struct{}), warned: make(map[string]bool)}
	if shared, ok := store.(Sharer); ok {
		b.shared = shared
		if shared.HashesKeys() {
			b.hasher = shared
		}
	}
	return b
}

// Clock returns the clock of the store.
func (b *Book) Clock() *storeclock.Clock { return b.clock }

// Shared reports whether the store keeps the overrides, for all Caddys that share it.
func (b *Book) Shared() bool { return b.shared != nil }

// Hasher returns what makes the HMACs that records hold in place of keys; nil if keys are kept as they are.
func (b *Book) Hasher() overrides.Hasher { return b.hasher }

// Hashes returns what records hold in place of a key: its HMAC under each secret, in hex. Hasher must not be nil.
func (b *Book) Hashes(key string) (hashes []string) {
	for n := 0; ; n++ {
		sum, ok := b.hasher.HashKey(key, n)
		if !ok {
			return hashes
		}
		hashes = append(hashes, hex.EncodeToString(sum[:]))
	}
}

// Begin has the overrides hold in zones that run from now on. Those of a store are read first, which
// takes as long as the store waits for its server at most.
func (b *Book) Begin(zones []*Zone, storage overridestore.Storage) {
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
	b.apply(b.clock.Now())
	b.mu.Unlock()
	if !first {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.ended = cancel, new(sync.WaitGroup)
	if b.shared != nil {
		b.Look(ctx)
	}
	b.ended.Go(func() { b.run(ctx) })
}

// Foresee gives a zone what is known, until it runs: sites can serve before the app starts. If
// nothing is known yet, that is what Caddy's storage has.
func (b *Book) Foresee(z *Zone, storage overridestore.Storage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.copy.Version == "" && !b.foreseen {
		b.foreseen = true
		if kept, err := overridestore.New(storage, b.name, b.shared != nil).Load(); err == nil { // else Begin tells
			b.copy = kept
		}
	}
	if len(b.copy.Records)+len(b.copy.Past) > 0 {
		b.applyTo(z, b.clock.Now())
	}
}

// load takes up what Caddy's storage has.
func (b *Book) load(storage *overridestore.Place) {
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

// End undoes Begin.
func (b *Book) End(zones []*Zone) {
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
func (b *Book) forgetMisfits(ended []*Zone) {
	names := make(map[string]bool)
	for z := range b.zones {
		names[z.Name] = true
	}
	for _, z := range ended {
		if !names[z.Name] {
			metrics.OverridesNotApplied.DeleteLabelValues(b.name, z.Name)
		}
	}
}

// run looks at the store now and then, and at what has ended.
func (b *Book) run(ctx context.Context) {
	for {
		wait := time.NewTimer(refresh - rand.N(refresh/4)) //nolint:gosec // spreads load
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		if b.shared != nil {
			b.Look(ctx)
		}
		b.Tidy(b.clock.Now())
	}
}

// install has other records hold. mu is held.
func (b *Book) install(c overridestore.Copy) {
	slices.SortFunc(c.Records, func(x, y overrides.Record) int { return strings.Compare(x.ID, y.ID) })
	b.copy, b.lost, b.changed = c, false, b.clock.Now()
	metrics.OverridesHeld.WithLabelValues(b.name).Set(float64(len(c.Records)))
	b.apply(b.changed)
}

// keep keeps what a store has for a start without it.
func (b *Book) keep(c overridestore.Copy) {
	b.mu.Lock()
	storage := b.storage
	b.mu.Unlock()
	if err := storage.Save(c); err != nil {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "storage").Inc()
		storestate.Logger(b.name).Warn("overrides could not be kept in Caddy's storage; a start without the store would lack them", zap.Error(err))
	}
}

// Current returns what this Caddy knows: with a store that is away, the last copy. lost reports that the store
// has lost the records.
func (b *Book) Current() (c overridestore.Copy, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.copy, b.lost
}
