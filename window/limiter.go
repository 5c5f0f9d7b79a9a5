package window

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// OnError says what a Limiter decides while its store is away. The zero value returns the error of
// the store.
type OnError int

const (
	// Local decides on counts of this process, which are booked in the store once it is back. Stores
	// of package redis can do so; the error of any other store is returned.
	Local OnError = iota + 1
	// Allow lets every request pass.
	Allow
	// Deny lets none pass.
	Deny
)

// localStore is implemented by stores that can be away, and have counts of this process.
type localStore interface {
	// Local returns the store with what decides in its place while it is away. It is closed with the
	// store.
	Local() Store
}

// Limiter limits the rate of one zone's keys. It is safe for concurrent use if the store is.
type Limiter struct {
	// Store decides, and keeps the counters. It is closed by its owner.
	Store Store
	// Zone has the name, the algorithm and the policies.
	Zone *Zone
	// What is decided while the store is away. Default: its error is returned.
	OnError OnError
}

// NewLimiter returns a limiter of a zone without Options. Its error is that of NewZone.
func NewLimiter(store Store, zone string, algorithm Algorithm, policies ...Policy) (Limiter, error) {
	z, err := NewZone(zone, algorithm, policies, Options{})
	return Limiter{Store: store, Zone: z}, err
}

// Allow spends one unit on a key if every policy of the zone lets it pass, and returns the decision
// that matters most: of denials the one that lasts longest, else the one that leaves the least.
// Its error is an outage on which OnError did not decide, and no verdict: see Store.
func (l Limiter) Allow(ctx context.Context, key string) (Decision, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN is Allow for n units, which pass together or not at all.
func (l Limiter) AllowN(ctx context.Context, key string, n int64) (Decision, error) {
	ds, err := l.store().Take(ctx, []Charge{l.Zone.Charge(key, n)})
	return l.decision(ctx, ds, err)
}

// Decide is AllowN with the decision on each policy of the zone. While OnError lets requests pass, there are
// no decisions and no error; while it denies them, the error is that of the store.
func (l Limiter) Decide(ctx context.Context, key string, n int64) ([]Decision, error) {
	ds, err := l.store().Take(ctx, []Charge{l.Zone.Charge(key, n)})
	if l.OnError == Allow && isOutage(ctx, err) {
		return nil, nil
	}
	return ds, err
}

func isOutage(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, ErrUnavailable)
}

// Peek returns whether Allow would let the key pass now, and what is left. It spends nothing.
func (l Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	ds, err := l.store().Peek(ctx, []Charge{l.Zone.Charge(key, 1)})
	return l.decision(ctx, ds, err)
}

// Reset forgets what a key has spent.
func (l Limiter) Reset(ctx context.Context, key string) error {
	return l.store().Reset(ctx, l.Zone.Charge(key, 1))
}

// Wait waits until Allow lets the key pass. It returns an error at once, which wraps
// context.DeadlineExceeded, if that would take longer than until the deadline of ctx. Callers that
// wait for one key pass in no certain order.
func (l Limiter) Wait(ctx context.Context, key string) error {
	for {
		d, err := l.Allow(ctx, key)
		switch end, ok := ctx.Deadline(); {
		case err != nil:
			return err
		case d.Allowed:
			return nil
		case d.RetryAfter == 0:
			return fmt.Errorf("%w: its requests are denied until it is back", ErrUnavailable)
		case d.RetryAfter == Never:
			return errors.New("a limit below 1 lets nothing pass")
		case ok && time.Until(end) < d.RetryAfter:
			return fmt.Errorf("the key has to wait for %s: %w", d.RetryAfter, context.DeadlineExceeded)
		}
		timer := time.NewTimer(d.RetryAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (l Limiter) store() Store {
	if l.OnError == Local {
		if s, ok := l.Store.(localStore); ok {
			return s.Local()
		}
	}
	return l.Store
}

// decision returns the decision that matters most, or what OnError decides.
func (l Limiter) decision(ctx context.Context, ds []Decision, err error) (Decision, error) {
	switch {
	case err == nil:
	case l.OnError < Allow, !isOutage(ctx, err):
		return Decision{}, err
	default:
		return Decision{Allowed: l.OnError == Allow}, nil
	}
	worst := ds[0]
	for _, d := range ds[1:] {
		if d.RetryAfter > worst.RetryAfter || d.RetryAfter == worst.RetryAfter && d.Remaining < worst.Remaining {
			worst = d
		}
	}
	return worst, nil
}
