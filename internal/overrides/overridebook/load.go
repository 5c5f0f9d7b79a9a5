package overridebook

import (
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
)

// foresight is how long Foresee waits for Caddy's storage. Files answer at once. A storage behind a network may take
// longer than a configuration should take to load.
const foresight = 100 * time.Millisecond

// loading is a look at Caddy's storage that may be under way.
type loading struct {
	ended chan struct{} // is closed when it has ended
	err   error         // is set before
	zones []*Subscriber // get what is found; guarded by Book.mu
}

// Preload applies the last known records to z: sites can serve before the app starts. If
// nothing is known yet, that is what Caddy's storage has. If the storage is slow, the zone gets it later.
func (b *Book) Preload(z *Subscriber, storage Storage) {
	b.mu.Lock()
	isFirst := b.runs == 0 && b.loading == nil // else it runs in a storage, or was waited for
	b.mu.Unlock()
	if isFirst {
		b.place.Use(storage)
		_ = b.load(foresight) // Begin tells
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loading != nil {
		b.loading.zones = append(b.loading.zones, z)
	}
	if len(b.copy.Records)+len(b.copy.Past) > 0 {
		b.applyTo(z, b.clock.Now())
	}
}

// load applies the records of Caddy's storage, unless records are known already. It waits no longer than patience. A later answer of the storage still counts.
func (b *Book) load(patience time.Duration) error {
	b.mu.Lock()
	if b.loaded || b.copy.Version != "" {
		b.mu.Unlock()
		return nil
	}
	l := b.loading
	if l == nil {
		l = &loading{ended: make(chan struct{})}
		b.loading = l
		go b.finish(l)
	}
	b.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.ended:
		return l.err
	case <-timer.C:
		return ErrSlow
	}
}

// finish asks Caddy's storage. It ends when the storage answers.
func (b *Book) finish(l *loading) {
	kept, err := b.place.Load()
	if err != nil {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "storage").Inc()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer close(l.ended)
	l.err, b.loading = err, nil
	if err != nil {
		return
	}
	b.loaded = true
	if b.shared != nil {
		kept = withStamps(kept)
	}
	if b.copy.Version == "" && kept.Version != "" {
		b.copy = kept
	}
	if len(b.copy.Records)+len(b.copy.Past) == 0 {
		return
	}
	b.apply(b.clock.Now())
	for _, z := range l.zones {
		b.applyTo(z, b.clock.Now())
	}
}

// notKept tells that Caddy's storage does not take what it is to hold.
func (b *Book) notKept(err error) {
	metrics.OverrideErrorsTotal.WithLabelValues(b.name, "storage").Inc()
	storestate.Logger(b.name).Warn("overrides could not be kept in Caddy's storage; a start without the store would lack them", zap.Error(err))
}
