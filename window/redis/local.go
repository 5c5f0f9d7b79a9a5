package redis

import (
	"context"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// locally keeps limits while the server is away. The guard is created on first use.
type locally struct {
	once sync.Once
	made *local
}

// Local returns the store with counts of this process, which decide while the server is away, and
// are booked in the store once it is back: see window.Local. It is closed with the store.
func (s *Store) Local() window.Store {
	s.locally.once.Do(func() {
		g := fallback.New(engineStore{s}, fallback.Options{})
		g.EnableLocal()
		s.locally.made = &local{s, g}
	})
	return s.locally.made
}

// close closes what Local has returned, while the client is still open.
func (l *locally) close() {
	l.once.Do(func() { l.made = new(local) })
	if l.made.guard != nil {
		_ = l.made.guard.Close() // it returns no error of its own
	}
}

// local has no TakeInto of the Store, which would not ask the guard.
type local struct {
	window.Store
	guard *fallback.Guard
}

// Take implements window.Store.
func (l *local) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	ds, err := l.guard.Take(ctx, charges)
	if fallback.IsOutage(ctx, err) {
		return l.guard.TakeLocal(ctx, charges, err, false)
	}
	return ds, err
}

// TakeBatch implements window.Store.
func (l *local) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	results := l.guard.TakeBatch(ctx, requests)
	for i := range results {
		if r := &results[i]; fallback.IsOutage(ctx, r.Err) {
			r.Decisions, r.Err = l.guard.TakeLocal(ctx, requests[i], r.Err, false)
		}
	}
	return results
}

// Peek implements window.Store.
func (l *local) Peek(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	ds, _, _, err := l.guard.Peek(ctx, charges, true, false)
	return ds, err
}

// Reset implements window.Store. While the server is away, it is told once it is back.
func (l *local) Reset(ctx context.Context, charge window.Charge) error {
	_, err := l.guard.Reset(ctx, charge)
	return err
}
