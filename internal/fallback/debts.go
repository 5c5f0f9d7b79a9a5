package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

const (
	// maxOwed and maxInDoubt are how many counters may have such units: 150 bytes each.
	maxOwed    = memory.DefaultMaxKeys
	maxInDoubt = 100_000
)

// debts are units by counter, which are forgotten a window after they were added. The lock of the
// debtors guards those that are owed, and the lock of the counter's shard the others.
type debts struct {
	store *memory.Store
	most  int64 // counters
}

func newDebts(most int64) debts {
	return debts{memory.New(memory.Options{MaxKeys: most}), most}
}

// counter returns what counts the units of c: exactly, in the longest of its windows,
// and without a limit of its own. A bucket is looked at for as long as it takes to run
// empty.
func counter(c *window.Charge) window.Charge {
	var longest int64 // ms
	for _, p := range c.Policies {
		length := p.Window.Milliseconds()
		if most := p.AtOnce(c.Algorithm); most > p.Limit {
			length = most * length / p.Limit
		}
		longest = max(longest, length)
	}
	return window.Charge{
		Zone: c.Algorithm.Name() + ":" + c.Zone, Key: c.Key, Algorithm: window.Log{},
		Policies: []window.Policy{{Limit: window.MaxProduct / longest, Window: time.Duration(longest) * time.Millisecond}},
	}
}

// none reports whether no units are owed. It takes no lock.
func (d debts) none() bool { return d.store.Keys() == 0 }

// of returns the units of c.
func (d debts) of(c *window.Charge) int64 {
	if d.none() {
		return 0
	}
	ds, err := d.store.Peek(context.Background(), []window.Charge{counter(c)})
	if err != nil {
		return 0 // what can be charged can be counted
	}
	return ds[0].Limit - ds[0].Remaining
}

// add adds units of c. Rather than have counters share one, as they would in a full
// store, it forgets them.
func (d debts) add(c *window.Charge, units int64) {
	if d.store.Keys() < d.most {
		_ = d.store.ChargeMore(context.Background(), counter(c), units)
	}
}

// takeOut returns the units of c, and forgets them.
func (d debts) takeOut(c *window.Charge) int64 {
	units := d.of(c)
	if units > 0 {
		_ = d.store.Reset(context.Background(), counter(c))
	}
	return units
}

// settled reports whether there is nothing to be booked before a store decides.
func (g *Guard) settled() bool {
	return g.owed.none() && g.debtors.Len() == 0
}

// repay books what is owed on the counters of charges, before the store decides on them. It
// returns the units that it booked of each charge. If another goroutine books a counter, repay
// waits until that is done.
func (g *Guard) repay(ctx context.Context, charges []window.Charge) (booked []int64, err error) {
	booked = make([]int64, len(charges))
	for i := range charges {
		if booked[i], err = g.repayOne(ctx, &charges[i]); err != nil {
			break
		}
	}
	return booked, err
}

func (g *Guard) repayOne(ctx context.Context, c *window.Charge) (int64, error) {
	hash := g.table().hash(c)
	var units int64
	var corrections *corrections
	begun, err := g.debtors.Begin(ctx, hash, func(d *debtor) bool {
		units, corrections = g.takeOut(d, c)
		return units > 0 || corrections != nil
	})
	if err != nil {
		return 0, late(err)
	}
	if !begun {
		return 0, nil
	}
	defer g.debtors.Finish(hash)
	rest, err := g.correct(ctx, corrections)
	unknown := false
	if err == nil && units > 0 {
		err = g.settle(ctx, c, units)
		unknown = errors.Is(err, window.ErrUnknown)
	}
	g.correctLater(hash, rest)
	switch {
	case units == 0 || err == nil:
	case unknown:
		g.mayHave(hash, c, units)
	default:
		g.owe(hash, c, units)
	}
	if err != nil {
		return 0, engine.NotSent(err)
	}
	return units, nil
}

// mayHave notes units that may be in the store beside what is known of it.
func (g *Guard) mayHave(hash uint64, c *window.Charge, units int64) {
	s := g.table().shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.inDoubt.add(c, units)
}

// settle books units in the store.
func (g *Guard) settle(ctx context.Context, c *window.Charge, units int64) error {
	own, cancel := lasts(ctx)
	defer cancel()
	owed := *c
	owed.Fields = nil // they are of the request that came next, not of those that passed
	return g.breaker.ChargeMore(own, owed, units)
}

// lasts returns a context that keeps the deadline of ctx but ignores its cancellation: other
// requests may wait for the result.
func lasts(ctx context.Context) (context.Context, context.CancelFunc) {
	own := context.WithoutCancel(ctx)
	if end, ok := ctx.Deadline(); ok {
		return context.WithDeadline(own, end)
	}
	return own, func() {}
}

// patience is lasts for a caller that has no deadline of its own.
func (g *Guard) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(g.timeout(), bookLast))
}

func late(err error) error {
	return fmt.Errorf("%w: booking what passed without it: %w", window.ErrUnavailable, err)
}

// doubt notes that units may be in the store beside what is known of it, for a decision
// that would have told did not come.
func (g *Guard) doubt(charges []window.Charge, units []int64) {
	for i := range charges {
		if units[i] > 0 {
			g.mayHave(g.table().hash(&charges[i]), &charges[i], units[i])
		}
	}
}
