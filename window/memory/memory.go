// Package memory is a window.Store in this process. It grows with use, the
// number of keys is capped, and what has expired is swept away.
//
// A [Store] is safe for concurrent use. It shares its room out evenly among zones: a flood of keys in one zone evicts no counter of another one with no more
// than its share, and a key that denies is never evicted. Counters end with the process; package
// redis keeps them for a fleet.
package memory

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Defaults of Options.
const (
	DefaultMaxKeys       = 1_000_000
	DefaultSweepInterval = time.Second
)

// shardCount is well above the number of cores that share a store. It is the number of bits
// of an integer.
const shardCount = 64

// Options of a Store.
type Options struct {
	// Keys to keep at most, give or take the number of shards (64) and one
	// overflow key per zone and shard. Default: DefaultMaxKeys.
	MaxKeys int64
	// How often expired keys are swept away; negative: never. Default:
	// DefaultSweepInterval.
	SweepInterval time.Duration
	// Tests set the time, in Unix milliseconds. Nil: this process's clock, which
	// never steps back.
	Now func() int64
}

// Store implements window.Store. A key lives in one shard, and a request holds
// the locks of its keys' shards, in ascending order, from reading the clock to
// the last charge: what is decided on a key is in the order of the clock.
type Store struct {
	now    func() int64
	seed   maphash.Seed
	limits *limits
	stop   chan struct{} // closed by Close
	close  sync.Once
	done   chan struct{} // closed when the sweeper has ended
	_      [cacheLine]byte
	shards [shardCount]shard
}

// limits are shared by the shards.
type limits struct {
	_       [cacheLine]byte // every new key writes them
	keys    atomic.Int64    // kept now, without overflow keys
	maxKeys atomic.Int64
	_       [cacheLine]byte
}

// New returns an empty store. Its sweeper runs until Close.
func New(o Options) *Store {
	if o.MaxKeys <= 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.SweepInterval == 0 {
		o.SweepInterval = DefaultSweepInterval
	}
	if o.Now == nil {
		o.Now = clock()
	}
	s := &Store{
		now: o.Now, seed: maphash.MakeSeed(), limits: new(limits),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	s.SetMaxKeys(o.MaxKeys)
	for i := range s.shards {
		s.shards[i].limits = s.limits
	}
	if o.SweepInterval < 0 {
		close(s.done)
	} else {
		go s.sweeper(o.SweepInterval)
	}
	return s
}

// clock returns a clock that counts on from the time it was made, whatever
// happens to the time of day.
func clock() func() int64 {
	start := time.Now()
	ms := start.UnixMilli()
	return func() int64 { return ms + time.Since(start).Milliseconds() }
}

// SetMaxKeys changes the cap. Keys above a lowered cap go as new ones come.
func (s *Store) SetMaxKeys(n int64) { s.limits.maxKeys.Store(n) }

// Keys returns how many keys are kept.
func (s *Store) Keys() int64 { return s.limits.keys.Load() }

// String implements window.Store.
func (s *Store) String() string { return "memory" }

// Close implements window.Store. It ends the sweeper; the store still decides.
func (s *Store) Close() error {
	s.close.Do(func() { close(s.stop) })
	<-s.done
	return nil
}

// Take implements window.Store.
func (s *Store) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return s.TakeInto(ctx, nil, charges)
}

// TakeInto is Take with room for the decisions.
func (s *Store) TakeInto(_ context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	return s.decide(charges, true, room)
}

// TakeBatch implements window.Store.
func (s *Store) TakeBatch(_ context.Context, requests [][]window.Charge) []window.Result {
	results := make([]window.Result, len(requests))
	for i, charges := range requests {
		results[i].Decisions, results[i].Err = s.decide(charges, true, nil)
	}
	return results
}

// Peek implements window.Store.
func (s *Store) Peek(_ context.Context, charges []window.Charge) ([]window.Decision, error) {
	return s.decide(charges, false, nil)
}

// GiveBack implements window.Store.
func (s *Store) GiveBack(_ context.Context, charge window.Charge, at, units int64) error {
	if err := engine.CheckUnits(charge, units); err != nil || units == 0 {
		return err
	}
	var room room
	accounts, locked, now := s.lock([]window.Charge{charge}, &room)
	defer s.unlock(accounts, locked)
	a := &accounts[0]
	if a.slot == none {
		return nil
	}
	a.keep(now)
	a.shard.write(a.slot, a.history().GiveBack(now, a.charge, at, units))
	a.gaveBack(now)
	return nil
}

// ChargeMore implements window.Store.
func (s *Store) ChargeMore(_ context.Context, charge window.Charge, units int64) error {
	if err := engine.CheckUnits(charge, units); err != nil || units == 0 {
		return err
	}
	var room room
	accounts, locked, now := s.lock([]window.Charge{charge}, &room)
	defer s.unlock(accounts, locked)
	a := &accounts[0]
	a.keep(now)
	c, till := a.lookBack(now)
	a.shard.write(a.slot, a.history().ChargeMore(now, c, units))
	a.note(now, a.standing(now))
	a.hasUntil(till)
	return nil
}

// Reset implements window.Store.
func (s *Store) Reset(_ context.Context, charge window.Charge) error {
	if err := engine.CheckReset(charge); err != nil {
		return err
	}
	if engine.IsHeld(&charge) {
		return nil // what is held is held, whatever is forgotten
	}
	var room room
	accounts, locked, _ := s.lock([]window.Charge{charge}, &room)
	defer s.unlock(accounts, locked)
	a := &accounts[0]
	if a.slot != none && !a.overflow {
		a.shard.drop(a.slot)
		a.slot = none
	}
	return nil
}

func (s *Store) decide(charges []window.Charge, take bool, memory []window.Decision) ([]window.Decision, error) {
	if err := engine.CheckCharges(charges); err != nil {
		return nil, err
	}
	ds := engine.MakeDecisions(charges, memory)
	var room room
	accounts, locked, now := s.lock(charges, &room)
	defer s.unlock(accounts, locked)
	fits, rest := true, ds
	for i := range accounts {
		a := &accounts[i]
		a.ds, rest = rest[:len(a.charge.Policies)], rest[len(a.charge.Policies):]
		fits = a.history().Look(now, a.charge, a.ds) && fits
	}
	for i := range accounts {
		a := &accounts[i]
		if take && fits && a.charge.Cost > 0 {
			a.spend(now)
			continue
		}
		h := a.history().Explain(now, a.charge, a.ds, take)
		if take && a.slot != none {
			a.shard.write(a.slot, h)
			sl := a.shard.slot(a.slot)
			sl.last(now, a.ds)
			sl.hold(now, a.ds)
		}
	}
	return ds, nil
}
