package window

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrOpen is in the chain of errors of a Breaker that does not ask its store.
var ErrOpen = errors.New("waiting for the store to come back")

const (
	breakAfter    = 3                      // failures in a row
	probeInterval = 200 * time.Millisecond // between two pings while open
)

// Breaker stops asking a store that does not answer, so that requests do not
// wait for it one by one. It opens after three failures in a row; while it is
// open it pings the store five times a second, off the path of requests, and
// closes at the first answer.
//
// Calls that are under way together, and fail, count as one: a single lost
// connection may be the end of them all.
//
// A caller that gives up, a charge that makes no sense, a store that takes no more
// at the moment and a counter that is none are no failures. What a store may know without
// asking its server, a denial or what a lease lets pass, does not end a row of them.
type Breaker struct {
	store    Store
	pinger   Pinger
	onChange func(open bool, cause error)

	open atomic.Bool
	// epoch is that of the last failure that counted: one of a call that began
	// before it says nothing new.
	epoch    atomic.Int64
	failures atomic.Int64 // in a row
	leased   atomic.Int64 // the latest Decision.At of charges that may have a lease
	mu       sync.Mutex   // guards the change from closed to open, and stopped
	stopped  bool
	stop     context.CancelFunc
	ctx      context.Context // of the prober; ends with Close
	prober   sync.WaitGroup  // at most one, while open
}

// NewBreaker guards store, which has to be a Pinger. onChange is told of every
// change of state, one after the other.
func NewBreaker(store interface {
	Store
	Pinger
}, onChange func(open bool, cause error),
) *Breaker {
	b := &Breaker{store: store, pinger: store, onChange: onChange}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Take is Store.Take, or ErrUnavailable and ErrOpen at once.
func (b *Breaker) Take(ctx context.Context, charges []Charge, room ...Decision) ([]Decision, error) {
	if b.Open() {
		return nil, errBreakerOpen
	}
	epoch := b.epoch.Load()
	ds, err := b.store.Take(ctx, charges, room...)
	if err != nil {
		b.failed(epoch, err)
	} else if Allowed(ds) {
		b.allowed(charges, ds)
	}
	return ds, err
}

// allowed ends a row of failures, unless it may have been a lease that let the request
// pass: its decisions have the time at which it was taken.
func (b *Breaker) allowed(charges []Charge, ds []Decision) {
	if len(charges) == 1 && charges[0].Lease.Units > 0 {
		latest := b.leased.Load()
		if ds[0].At <= latest || !b.leased.CompareAndSwap(latest, ds[0].At) {
			return
		}
	}
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

// Settle is Store.Settle, or ErrUnavailable and ErrOpen at once.
func (b *Breaker) Settle(ctx context.Context, charge Charge, at, delta int64) error {
	if b.Open() {
		return errBreakerOpen
	}
	epoch := b.epoch.Load()
	err := b.store.Settle(ctx, charge, at, delta)
	if err != nil {
		b.failed(epoch, err)
	}
	return err
}

// Open reports whether the store is not asked.
func (b *Breaker) Open() bool { return b.open.Load() }

var errBreakerOpen = fmt.Errorf("%w: %w", ErrUnavailable, ErrOpen)

// Doubt opens the breaker for a store that was away just now, to others. It pings at once,
// and as ever from then on. onChange has been told when it returns.
func (b *Breaker) Doubt(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || b.open.Load() {
		return
	}
	b.open.Store(true)
	b.onChange(true, cause)
	b.prober.Go(func() {
		if !b.answers() {
			b.probe()
		}
	})
}

// Close ends the prober. The store is not closed.
func (b *Breaker) Close() error {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.stop()
	b.prober.Wait()
	return nil
}

func (b *Breaker) failed(epoch int64, err error) {
	for _, none := range []error{context.Canceled, ErrInvalid, ErrBusy, ErrForeign} {
		if errors.Is(err, none) {
			return
		}
	}
	if !b.epoch.CompareAndSwap(epoch, epoch+1) || b.failures.Add(1) < breakAfter {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || b.open.Load() || b.failures.Load() < breakAfter {
		return
	}
	b.open.Store(true)
	b.prober.Go(func() {
		b.onChange(true, err)
		b.probe()
	})
}

// probe pings until the store answers or the breaker is closed for good.
func (b *Breaker) probe() {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-ticker.C:
		}
		if b.answers() {
			return
		}
	}
}

// answers pings the store, and closes the breaker if it answers.
func (b *Breaker) answers() bool {
	if b.pinger.Ping(b.ctx) != nil {
		return false
	}
	b.failures.Store(0)
	b.onChange(false, nil)
	b.open.Store(false)
	return true
}
