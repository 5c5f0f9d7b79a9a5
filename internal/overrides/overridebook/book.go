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

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/storeclock"
	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// refresh is the longest time between two looks at what a store has. Two of them are less than 3 s: in the first,
	// a Caddy writes what the store has lost or never had, and in the second the others find it.
	refresh = 1400 * time.Millisecond
	// longestLook is how long a look at the store takes at most. App.Start and App.Stop wait for one,
	// and requests that are under way wait with them.
	longestLook = time.Second
	// notable is by how much a clock has to move before the zones look again at what has ended.
	notable = time.Second / 4
	// lossPatience is how long a store refuses what it lacks until it counts as lost. A server that is no master any more
	// may refuse that for as long as a failover takes.
	lossPatience = 2 * refresh
	// foreignInterval is the time between two lines of the log on a key that holds other data.
	foreignInterval = time.Minute
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

	place   *File
	changes sync.Mutex // held for a change, whatever it waits for; before mu

	mu         sync.Mutex // guards all below
	copy       Copy
	lost       bool          // the store lacks what this Caddy knows, and does not take it
	loaded     bool          // Caddy's storage was read
	refused    bool          // the last look could not write what the store lacks
	refusedAt  time.Duration // in uptime, when such looks began
	loading    *loading      // of Caddy's storage, under way; nil without
	zones      map[*Subscriber]struct{}
	changed    time.Time       // when the zones got other records
	checked    time.Time       // up to when the log has which records have ended
	warned     map[string]bool // misfits that the log has, by record and reason
	foreignLog uptime.Rare
	runs       int // configurations
	stop       context.CancelFunc
	ended      *sync.WaitGroup
}

// New returns the book of a store. It holds nothing, and does nothing by itself, before Begin.
func New(store window.Store) *Book {
	name := strings.ToValidUTF8(store.String(), "\uFFFD")
	b := &Book{name: name, clock: storeclock.Of(name), zones: make(map[*Subscriber]struct{}), warned: make(map[string]bool)}
	if shared, ok := store.(Sharer); ok {
		b.shared = shared
		if shared.HashesKeys() {
			b.hasher = shared
		}
	}
	b.place = NewFile(name, b.shared != nil, b.notKept)
	if _, steps := store.(engine.Stepper); steps { // what has its own clock has its own storage, too
		b.place.key = func() (string, error) { return FileName, nil }
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

// Begin applies the overrides to zones that run from now on. Those of Caddy's storage and of a store are read first,
// which takes as long as these are waited for at most.
func (b *Book) Begin(zones []*Subscriber, storage Storage) {
	b.changes.Lock()
	defer b.changes.Unlock()
	b.place.Use(storage)
	b.mu.Lock()
	b.runs++
	first := b.runs == 1
	for _, z := range zones {
		b.zones[z] = struct{}{}
	}
	b.mu.Unlock()
	if err := b.load(Patience); err != nil {
		storestate.Logger(b.name).Warn("overrides could not be read from Caddy's storage; the overrides in the store apply", zap.Error(err))
	}
	b.mu.Lock()
	metrics.OverridesHeld.WithLabelValues(b.name).Set(float64(len(b.copy.Records)))
	now := b.clock.Now()
	if first {
		b.checked = now
	}
	b.apply(now)
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

// End undoes Begin.
func (b *Book) End(zones []*Subscriber) {
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
		_ = b.place.Wait() // notKept tells
	}
}

// forgetMisfits removes the gauges of zones that have ended, unless others of their name run. mu is held.
func (b *Book) forgetMisfits(ended []*Subscriber) {
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
		b.place.Retry()
	}
}

// install applies other records, and keeps them for a start without the store. mu is held.
func (b *Book) install(c Copy) {
	b.tellEnded(b.clock.Now())
	slices.SortFunc(c.Records, func(x, y overrides.Record) int { return strings.Compare(x.ID, y.ID) })
	b.copy, b.lost, b.refused, b.changed = c, false, false, b.clock.Now()
	metrics.OverridesHeld.WithLabelValues(b.name).Set(float64(len(c.Records)))
	b.apply(b.changed)
	if b.shared != nil {
		b.place.Keep(c)
	}
}

// Current returns what this Caddy knows: with a store that is away, the last copy. lost reports that the store
// has lost the records.
func (b *Book) Current() (c Copy, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.copy, b.lost
}
