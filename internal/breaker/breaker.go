// Package breaker keeps requests from a store that does not answer.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// ErrOpen is in the chain of errors of a Breaker that does not ask its store.
var ErrOpen = errors.New("waiting for the store to come back")

const (
	breakAfter    = 3                      // failures in a row
	probeInterval = 200 * time.Millisecond // between two pings while open
	isOpen        = 1 << 32                // failures of a part that is open, which no success resets
	isGone        = -1                     // failures of a part that the breaker has forgotten
)

// Breaker stops asking a store that does not answer, so that requests do not
// wait for it one by one. It opens after three failures in a row. While it is
// open it pings the store five times a second, off the path of requests, and
// closes at the first answer.
//
// A store that is Parted has a breaker per part: a request is refused if one of the parts that
// it needs is away, and requests that need other parts are not affected.
//
// Calls that are in flight together, and fail, count as one: a single lost
// connection may be the end of them all.
//
// context.Canceled, ErrInvalid, ErrBusy and ErrForeign do not count as failures. Answers given
// without the server, remembered denials and leased units, do not reset the failure count.
type Breaker struct {
	store    window.Store
	pinger   engine.Pinger
	parted   engine.Parted // nil: the store is one part
	onChange func(part string, open bool, cause error)
	onPing   func(part string, cause error)

	whole *part    // the store, or what of it has no name yet
	parts sync.Map // a *part by name, once it has failed
	// tick counts the failures of all parts that counted. Each notes the tick of its last: a
	// failure of a call that began before that says nothing new.
	tick    atomic.Int64
	failing atomic.Int64 // parts with failures in a row, or open
	leased  atomic.Int64 // the latest Decision.At of charges that may have a lease
	telling sync.Mutex   // held while onChange runs
	mu      sync.Mutex   // guards the changes of parts from closed to open, and stopped
	stopped bool
	stop    context.CancelFunc
	ctx     context.Context // of the probers; ends with Close
	probers sync.WaitGroup  // at most one per part, while it is open
	opening func()          // nil, or of a test: runs between the two writes of opens
}

// New guards store, which has to be a Pinger, and may be Parted. onChange is called on
// every change of state of every part, one after the other, and onPing of every ping that fails
// while a part is open; nil: not called. The name of the part is empty for the store as a
// whole.
func New(store interface {
	window.Store
	engine.Pinger
}, onChange func(part string, open bool, cause error), onPing func(part string, cause error),
) *Breaker {
	b := &Breaker{store: store, pinger: store, onChange: onChange, onPing: onPing, whole: new(part)}
	b.parted, _ = store.(engine.Parted)
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Take is Store.Take, or ErrUnavailable and ErrOpen at once.
func (b *Breaker) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return b.TakeInto(ctx, nil, charges)
}

// TakeInto is Take with room for the decisions.
func (b *Breaker) TakeInto(ctx context.Context, room []window.Decision, charges []window.Charge) (ds []window.Decision, err error) {
	err = b.call(charges, func() (err error) {
		ds, err = engine.TakeInto(ctx, b.store, room, charges)
		return err
	})
	if err == nil && window.Allowed(ds) {
		b.allowed(charges, ds)
	}
	return ds, err
}

// call asks the store about charges, unless a part of it is away that they need.
func (b *Breaker) call(charges []window.Charge, ask func() error) error {
	if b.Open(charges...) {
		return errBreakerOpen
	}
	began := b.tick.Load()
	err := ask()
	if err != nil {
		b.failed(began, charges, err)
	}
	return err
}

// allowed ends a row of failures, unless it may have been a lease that let the request
// pass: its decisions have the time at which it was taken.
func (b *Breaker) allowed(charges []window.Charge, ds []window.Decision) {
	if len(charges) == 1 && charges[0].Lease.Units > 0 {
		latest := b.leased.Load()
		if ds[0].At <= latest || !b.leased.CompareAndSwap(latest, ds[0].At) {
			return
		}
	}
	if b.failing.Load() == 0 {
		return
	}
	b.whole.succeeded(b)
	for _, p := range b.partsOf(charges) {
		p.succeeded(b)
	}
}

// ChargeMore is Store.ChargeMore, or ErrUnavailable and ErrOpen at once.
func (b *Breaker) ChargeMore(ctx context.Context, charge window.Charge, units int64) error {
	return b.call([]window.Charge{charge}, func() error { return b.store.ChargeMore(ctx, charge, units) })
}

// SettleBatch is BatchSettler.SettleBatch, with ErrUnavailable and ErrOpen at once for charges of
// which the store is away.
func (b *Breaker) SettleBatch(ctx context.Context, all []engine.Settlement) []error {
	errs := make([]error, len(all))
	asked, places := all, []int(nil)
	if b.failing.Load() != 0 {
		asked, places = nil, make([]int, 0, len(all))
		for i := range all {
			if errs[i] = errBreakerOpen; !b.Open(all[i].Charge) {
				asked, places = append(asked, all[i]), append(places, i)
			}
		}
	}
	if len(asked) == 0 {
		return errs
	}
	began := b.tick.Load()
	for k, err := range engine.SettleBatch(ctx, b.store, asked) {
		if err != nil {
			b.failed(began, []window.Charge{asked[k].Charge}, err)
		}
		if places != nil {
			errs[places[k]] = err
		} else {
			errs[k] = err
		}
	}
	return errs
}

// Reset is Store.Reset, or ErrUnavailable and ErrOpen at once.
func (b *Breaker) Reset(ctx context.Context, charge window.Charge) error {
	return b.call([]window.Charge{charge}, func() error { return b.store.Reset(ctx, charge) })
}

// Peek is Store.Peek, or ErrUnavailable and ErrOpen at once. Its errors do not count as failures:
// only operators ask.
func (b *Breaker) Peek(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	if b.Open(charges...) {
		return nil, errBreakerOpen
	}
	return b.store.Peek(ctx, charges)
}

// Open reports whether the store is not asked about a request: it is away as a whole, or one
// of the parts is that the charges need.
func (b *Breaker) Open(charges ...window.Charge) bool {
	if b.failing.Load() == 0 {
		return false
	}
	if b.whole.open.Load() {
		return true
	}
	for _, p := range b.partsOf(charges) {
		if p.open.Load() {
			return true
		}
	}
	return false
}

var errBreakerOpen = fmt.Errorf("%w: %w", window.ErrUnavailable, ErrOpen)

// ForceOpen opens the breaker for a part of the store that was away just now, to others; for the
// store as a whole if the name is empty. It pings at once, and five times a second from then
// on. onChange has been told when it returns.
func (b *Breaker) ForceOpen(name string, cause error) {
	if name != "" && b.parted == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p, isNew := b.part(name)
	if isNew {
		b.forget(p)
	}
	if b.stopped || p.open.Load() {
		return
	}
	b.opens(p)
	b.tell(p, true, cause)
	b.probers.Go(func() {
		if !b.answers(p) {
			b.probe(p)
		}
	})
}

// Reach pings the store until it answers, and returns nil then. After three pings that failed
// the breaker is open, as after three requests, and pings the store itself. Reach returns an error
// if ctx or the breaker ends.
func (b *Breaker) Reach(ctx context.Context) error {
	for failures := 0; ; {
		if !b.whole.open.Load() {
			err := b.pinger.Ping(ctx)
			if err == nil || ctx.Err() != nil {
				return err
			}
			if failures++; failures == breakAfter {
				failures = 0
				b.ForceOpen("", err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-time.After(probeInterval):
		}
	}
}

// opens marks a part as open. b.mu must be held.
func (b *Breaker) opens(p *part) {
	if p.failures.Swap(isOpen) == 0 {
		b.failing.Add(1)
	}
	if b.opening != nil {
		b.opening()
	}
	p.open.Store(true)
}

func (b *Breaker) tell(p *part, open bool, cause error) {
	b.telling.Lock()
	defer b.telling.Unlock()
	b.onChange(p.name, open, cause)
}

// Close ends the probers. The store is not closed.
func (b *Breaker) Close() error {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.stop()
	b.probers.Wait()
	return nil
}

// failed counts a failure of a call that began at a tick, for the parts that the error names,
// or else for the one that the charges need. If they need several parts, the failed one is unknown.
func (b *Breaker) failed(began int64, charges []window.Charge, err error) {
	for _, none := range []error{context.Canceled, window.ErrInvalid, window.ErrBusy, window.ErrForeign} {
		if errors.Is(err, none) {
			return
		}
	}
	if b.parted == nil {
		b.failedPart(b.whole, began, err)
		return
	}
	var names []string
	if of := new(engine.PartError); errors.As(err, &of) {
		names = of.Parts
	} else if names = b.parted.Parts(charges, nil); len(names) > 1 {
		return
	}
	for _, name := range names {
		p, isNew := b.part(name)
		if isNew {
			b.mu.Lock()
			b.forget(p)
			b.mu.Unlock()
		}
		b.failedPart(p, began, err)
	}
}

func (b *Breaker) failedPart(p *part, began int64, err error) {
	last := p.last.Load()
	if last > began || !p.last.CompareAndSwap(last, b.tick.Add(1)) {
		return
	}
	n := p.fail()
	if n == 1 {
		b.failing.Add(1)
	}
	if n < breakAfter {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || p.open.Load() || p.failures.Load() < breakAfter {
		return
	}
	b.opens(p)
	b.probers.Go(func() {
		b.tell(p, true, err)
		b.probe(p)
	})
}

// probe pings until the part answers or the breaker is closed for good.
func (b *Breaker) probe(p *part) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-ticker.C:
		}
		if b.answers(p) {
			return
		}
	}
}

// answers pings a part, and closes it if it answers.
func (b *Breaker) answers(p *part) bool {
	var err error
	if p.name == "" {
		err = b.pinger.Ping(b.ctx)
	} else {
		err = b.parted.PingPart(b.ctx, p.name)
	}
	if err != nil {
		if b.onPing != nil && b.ctx.Err() == nil {
			b.onPing(p.name, err)
		}
		return false
	}
	b.tell(p, false, nil)
	p.failures.Store(0)
	p.open.Store(false)
	b.failing.Add(-1)
	return true
}
