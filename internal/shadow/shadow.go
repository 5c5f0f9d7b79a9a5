// Package shadow decides, beside the handlers, on charges of zones that do not deny. It does so on a store of
// its own.
package shadow

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Request is a request in a zone that does not deny it. A Slot calls one of Decided, Failed and Dropped, once.
// They must not call the Slot, but for Free.
type Request interface {
	// Charges appends what the request spends. It does not change while the request waits.
	Charges(to []window.Charge) []window.Charge
	// Size returns the bytes of keys and fields that the request keeps.
	Size() int
	// Local reports whether local counts decide while the store is away, and whether limits are then divided
	// by the number of processes.
	Local() (local, share bool)
	// Decided is told what was decided.
	Decided(ds []window.Decision)
	// Failed is told why nothing was decided.
	Failed(err error)
	// Dropped is told that too many requests wait, or that the Slot was closed.
	Dropped()
}

// Slot has the worker that decides on requests beside those of a store. It starts with the first request. The fields
// must be set before that. A Slot is safe for concurrent use.
type Slot struct {
	// Returns a new store, which the Slot closes. Nil: the Slot has no store, and drops requests.
	Open func() window.Store
	// Whose count of processes divides limits; see fallback.Options.
	Presence *fallback.Guard
	// Called when the store goes away, or is back. It gets the outages of the enforced store, too, which has the same server. Nil: not called.
	Outages *storestate.Outages
	// Whether Add decides before it returns, rather than a worker beside it.
	Inline bool

	now    atomic.Pointer[worker]
	mu     sync.Mutex // held while the worker comes and goes
	closed bool
}

// Add queues a request to be decided on, or drops it.
func (s *Slot) Add(r Request) {
	w := s.worker()
	switch {
	case w != nil && s.Inline:
		w.decide([]Request{r})
	case w == nil || !w.add(r):
		r.Dropped()
	}
}

// Peek returns what the next request with these charges would get. Nothing is spent. It reports false if
// the Slot has no store.
func (s *Slot) Peek(ctx context.Context, charges []window.Charge) (ds []window.Decision, ok bool, err error) {
	w := s.worker()
	if w == nil {
		return nil, false, nil
	}
	ds, err = w.store.Peek(ctx, charges)
	return ds, true, err
}

// Reset forgets the history of a charge's counter, if anything was decided here.
func (s *Slot) Reset(ctx context.Context, c window.Charge) error {
	if w := s.now.Load(); w != nil {
		return w.store.Reset(ctx, c)
	}
	return nil
}

// Free gives back the units of a charge with window.Concurrent that were admitted here. It waits for nothing.
func (s *Slot) Free(c window.Charge) {
	switch w := s.now.Load(); {
	case w == nil:
	case w.fallback != nil:
		w.fallback.Free(c)
	default:
		_ = w.store.GiveBack(context.Background(), c, 0, c.Cost) // it was checked when it was admitted
	}
}

// Close drops the requests that wait, and those that come later. It closes the store.
func (s *Slot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if w := s.now.Load(); w != nil {
		return w.close()
	}
	return nil
}

// worker returns the worker, which it starts if there was none. It returns nil if the Slot has no
// store, or was closed before it had a worker.
func (s *Slot) worker() *worker {
	if w := s.now.Load(); w != nil {
		return w
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.now.Load(); w != nil || s.closed || s.Open == nil {
		return w
	}
	w := newWorker(s.Open(), s.Presence, s.Outages)
	s.now.Store(w)
	return w
}
