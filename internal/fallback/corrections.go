package fallback

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// maxGiveBacks bounds what is given back on a counter while the store is away. What is beyond it
// stays spent.
const maxGiveBacks = 64

// corrections are what the store has to do on a counter, once it is back and before anything is
// booked.
type corrections struct {
	charge window.Charge
	reset  bool // it comes first
	backs  []engine.Settlement
}

// correctLater keeps corrections for a store that is away; nil: none. It reports whether there
// was room.
func (c *Counts) correctLater(hash uint64, own *corrections) (kept bool) {
	if own == nil {
		return true
	}
	return c.debtors.Add(hash, func(d *debtor) {
		d.update(&own.charge)
		if d.late == nil || own.reset { // a reset came after those that there are
			d.late, kept = own, true
		} else if kept = len(d.late.backs)+len(own.backs) <= maxGiveBacks; kept {
			d.late.backs = append(d.late.backs, own.backs...)
		}
	}) && kept
}

// correct corrects a counter in the store. It returns what has not been done; nil: nothing. It
// goes on when the client goes, as settle does.
//
// A reset may be done twice, but a give-back may not: one whose answer is lost counts as done.
func (g *Guard) correct(ctx context.Context, own *corrections) (rest *corrections, err error) {
	if own == nil {
		return nil, nil
	}
	ctx, cancel := lasts(ctx)
	defer cancel()
	if own.reset {
		if err := g.breaker.Reset(ctx, own.charge); err != nil && !hopeless(err) {
			return own, err
		}
		own.reset = false
	}
	var left []engine.Settlement
	for i, failed := range g.breaker.SettleBatch(ctx, own.backs) {
		if failed != nil && !hopeless(failed) && !errors.Is(failed, window.ErrUnknown) {
			left, err = append(left, own.backs[i]), failed
		}
	}
	if left == nil {
		return nil, nil
	}
	own.backs = left
	return own, err
}

// hopeless reports whether the same call would fail again, whenever it is made.
func hopeless(err error) bool {
	return errors.Is(err, window.ErrInvalid) || errors.Is(err, window.ErrForeign)
}

// Reset forgets the history of the charge's counter: in the store, and all that this process
// has counted, knows or owes. While the store is away, done is false without an error: the store
// is told once it is back, before anything is booked on the counter. That is lost when the
// process ends before.
//
// The charge needs its policies, unlike that of window.Store.Reset.
func (g *Guard) Reset(ctx context.Context, charge window.Charge) (done bool, err error) {
	if err := engine.CheckCharges([]window.Charge{charge}); err != nil {
		return false, err
	}
	hash := g.table().hash(&charge)
	if _, err := g.debtors.Begin(ctx, hash, func(d *debtor) bool { _, _ = g.takeOut(d, &charge); return true }); err != nil {
		return false, late(err)
	}
	defer g.debtors.Finish(hash)
	g.forget(hash, &charge)

	own, cancel := g.patience(ctx)
	err = g.store.Reset(own, charge) // also while it is away: it has something to forget here
	cancel()
	if err == nil || hopeless(err) {
		return err == nil, err
	}
	if !g.correctLater(hash, &corrections{charge: lasting(&charge), reset: true}) {
		return false, fmt.Errorf("%w: %w: the reset cannot be kept until it is back: %w", window.ErrUnavailable, window.ErrBusy, err)
	}
	return false, nil
}

// forget forgets all that this process knows of a counter.
func (g *Guard) forget(hash uint64, c *window.Charge) {
	s := g.table().shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, _ = s.takeOut(g.now(), hash)
	_ = g.inDoubt.store.Reset(context.Background(), counter(c))
	_ = g.local.Reset(context.Background(), divided(*c, 1))
}
