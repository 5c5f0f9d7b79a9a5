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
	// maxOwed and maxUnsure are how many counters may have such units: 150 bytes each.
	maxOwed   = memory.DefaultMaxKeys
	maxUnsure = 100_000
)

// debts are units by counter, which are forgotten a window after they were added. The
// lock of the counter's shard guards them.
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

// none is the cheap way to know that there is nothing.
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
	return g.owed.none() && g.settling.Load() == 0 && g.late.Load() == 0
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
	s, err := g.turn(ctx, hash)
	if err != nil {
		return 0, err
	}
	g.settling.Add(1) // first: at no moment may it seem that nothing is left to be booked
	units, corrections := g.takeOwed(s, hash, c), g.takeCorrections(s, hash)
	if units == 0 && corrections == nil {
		g.settling.Add(-1)
		s.mu.Unlock()
		return 0, nil
	}
	s.begin(hash)
	s.mu.Unlock()

	rest, err := g.correct(ctx, corrections)
	unknown := false
	if err == nil && units > 0 {
		err = g.settle(ctx, c, units)
		unknown = errors.Is(err, window.ErrUnknown)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	g.correctLater(s, hash, rest)
	switch {
	case units == 0 || err == nil:
	case unknown:
		g.unsure.add(c, units)
	default:
		g.owe(s, hash, c, units)
	}
	g.paid(s, hash)
	g.finish(s, hash)
	if err != nil {
		return 0, engine.NotSent(err)
	}
	return units, nil
}

// turn returns the shard of a counter, locked, when nobody settles the counter with the store. It
// waits for that until ctx ends.
func (g *Guard) turn(ctx context.Context, hash uint64) (*shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, late(err)
	}
	s := g.table().shard(hash)
	s.mu.Lock()
	for s.settling[hash] != nil {
		done := s.settling[hash]
		s.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, late(ctx.Err())
		}
		s.mu.Lock()
	}
	return s, nil
}

// begin makes the caller the only one who settles a counter with the store, until finish; it has
// counted itself in settling. The shard's lock must be held.
func (s *shard) begin(hash uint64) {
	if s.settling == nil {
		s.settling = make(map[uint64]chan struct{})
	}
	s.settling[hash] = make(chan struct{})
}

// finish ends what begin began. The shard's lock must be held.
func (g *Guard) finish(s *shard, hash uint64) {
	close(s.settling[hash])
	delete(s.settling, hash)
	g.settling.Add(-1)
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
	k := g.table()
	for i := range charges {
		if units[i] > 0 {
			locked := k.lock([]uint64{k.hash(&charges[i])})
			g.unsure.add(&charges[i], units[i])
			k.unlock(locked)
		}
	}
}
