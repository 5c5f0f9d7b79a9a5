package shadow

import (
	"context"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Requests that wait at most, with the bytes of their keys and fields, and requests that a store
// decides on in one call.
const (
	maxWaiting = 4096
	maxBytes   = 4 << 20
	maxBatch   = 128
)

// worker decides on requests, one after the other.
type worker struct {
	store    window.Store
	fallback *fallback.Guard // nil for a store that cannot be away
	ctx      context.Context // ends with close
	cancel   context.CancelFunc
	group    sync.WaitGroup // one goroutine while requests wait

	mu      sync.Mutex // guards what follows
	waiting []Request
	bytes   int
	working bool
	closed  bool
}

// newWorker returns a worker on a store, which it closes.
func newWorker(store window.Store, presence *fallback.Guard, outages *storestate.Outages) *worker {
	w := &worker{store: store}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	if away, ok := store.(fallback.Store); ok {
		options := fallback.Options{Presence: presence}
		if outages != nil {
			options.OnChange, options.OnPing = outages.Changed, outages.Pinged
		}
		w.fallback = fallback.New(away, options)
		w.fallback.EnableLocal()
	}
	return w
}

// add queues a request to be decided on. It reports false if too many wait.
func (w *worker) add(r Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.waiting) >= maxWaiting || w.bytes+r.Size() > maxBytes {
		return false
	}
	w.waiting = append(w.waiting, r)
	w.bytes += r.Size()
	if !w.working {
		w.working = true
		w.group.Go(w.work)
	}
	return true
}

// work decides on requests until none waits.
func (w *worker) work() {
	batch := make([]Request, 0, maxBatch)
	for {
		batch = w.next(batch[:0])
		if len(batch) == 0 {
			return
		}
		w.decide(batch)
		clear(batch)
	}
}

// next takes the requests that have waited longest.
func (w *worker) next(batch []Request) []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.waiting), maxBatch)
	batch = append(batch, w.waiting[:n]...)
	for _, r := range batch {
		w.bytes -= r.Size()
	}
	clear(w.waiting[:n])
	w.waiting = w.waiting[n:]
	if n == 0 {
		w.waiting, w.working = nil, false
	}
	return batch
}

// decide decides as the handlers of the requests would.
func (w *worker) decide(batch []Request) {
	requests, charges := make([][]window.Charge, len(batch)), make([]window.Charge, 0, len(batch))
	for i, r := range batch {
		from := len(charges)
		charges = r.Charges(charges)
		requests[i] = charges[from:]
	}
	for i, result := range w.take(requests) {
		r, ds, err := batch[i], result.Decisions, result.Err
		if local, share := r.Local(); err != nil && local && w.fallback != nil {
			ds, err = w.fallback.TakeLocal(w.ctx, requests[i], err, share)
		}
		switch {
		case err == nil:
			r.Decided(ds)
		case w.ctx.Err() != nil:
			r.Dropped()
		default:
			r.Failed(err)
		}
	}
}

func (w *worker) take(requests [][]window.Charge) []window.Result {
	if w.fallback == nil {
		return w.store.TakeBatch(w.ctx, requests)
	}
	return w.fallback.TakeBatch(w.ctx, requests)
}

// close ends what decides. Requests that wait are dropped.
func (w *worker) close() error {
	w.mu.Lock()
	w.closed = true
	for _, r := range w.waiting {
		r.Dropped()
	}
	w.waiting = nil
	w.mu.Unlock()
	w.cancel()
	w.group.Wait()
	if w.fallback != nil {
		w.fallback.DisableLocal()
		_ = w.fallback.Close() // it returns no error of its own
	}
	return w.store.Close()
}
