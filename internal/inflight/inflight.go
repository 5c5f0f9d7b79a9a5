// Package inflight counts receipts that are not settled yet.
package inflight

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Receipts counts, by counter, the receipts that are not settled yet. A denial then says when room may come back, and a
// request that follows an answer finds the units that the answer gave back.
type Receipts struct {
	seed maphash.Seed
	// How often units were given back, by the counter's lower bits.
	refundCounts [1024]atomic.Uint64
	turns        atomic.Int64 // requests that are decided on once more
	shards       [64]shard
}

type shard struct {
	mu       sync.Mutex // guards all; held for a few instructions
	counters map[uint64]*unsettled
	_        [48]byte // keeps the locks of two shards apart
}

// unsettled are the receipts of a counter.
type unsettled struct {
	open           int   // whose answers are not known yet
	pendingRefunds queue // units that are being given back
	turns          queue // denied requests that are about to be decided on once more
}

// hasReceipts reports whether the counter has receipts that are not settled. It may be called on nil.
func (u *unsettled) hasReceipts() bool { return u != nil && (u.open > 0 || len(u.pendingRefunds) > 0) }

// New returns Receipts without any.
func New() *Receipts { return &Receipts{seed: maphash.MakeSeed()} }

// Counter returns the number of a charge's counter. Two may share one.
func (f *Receipts) Counter(c *window.Charge) uint64 {
	return maphash.String(f.seed, c.Key) ^ maphash.String(f.seed, c.Zone)>>1
}

// RefundsOf returns how often units of a counter were given back. Counters may share it.
func (f *Receipts) RefundsOf(counter uint64) *atomic.Uint64 { return &f.refundCounts[counter%1024] }

func (f *Receipts) shard(counter uint64) *shard { return &f.shards[counter>>58] }

// Open adds a receipt of a counter.
func (f *Receipts) Open(counter uint64) {
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.counters[counter]
	if u == nil {
		if s.counters == nil {
			s.counters = make(map[uint64]*unsettled)
		}
		u = new(unsettled)
		s.counters[counter] = u
	}
	u.open++
}

// Settle ends a receipt of Open that gives nothing back.
func (f *Receipts) Settle(counter uint64) {
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.counters[counter]
	u.open--
	s.tidy(counter, u)
}

// GiveBack ends a receipt of Open whose units are being given back, until Landed.
func (f *Receipts) GiveBack(counter uint64) *Group {
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.counters[counter]
	u.open--
	return u.pendingRefunds.join()
}

// Refunded notes that the units of a GiveBack are back, or cannot be given back.
func (f *Receipts) Refunded(counter uint64, g *Group) {
	f.RefundsOf(counter).Add(1)
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.counters[counter]
	u.pendingRefunds.leave(g)
	s.tidy(counter, u)
}

// tidy forgets a counter without receipts. s.mu must be held.
func (s *shard) tidy(counter uint64, u *unsettled) {
	if !u.hasReceipts() && len(u.turns) == 0 {
		delete(s.counters, counter)
	}
}

// Any reports whether a counter has receipts that are not settled.
func (f *Receipts) Any(counter uint64) bool {
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters[counter].hasReceipts()
}

// PendingRefunds returns a channel that is closed when what is being given back on a counter is back, whatever begins to be
// given back later; nil if nothing is.
func (f *Receipts) PendingRefunds(counter uint64) <-chan struct{} {
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.counters[counter]; u != nil {
		return u.pendingRefunds.left()
	}
	return nil
}

// Turn notes that a denied request is about to be decided on once more, until EndTurn. It returns nil for a counter
// without receipts: no room comes back then.
func (f *Receipts) Turn(counter uint64) *Group {
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.counters[counter]
	if !u.hasReceipts() {
		return nil
	}
	f.turns.Add(1)
	return u.turns.join()
}

// EndTurn undoes Turn.
func (f *Receipts) EndTurn(counter uint64, g *Group) {
	if g == nil {
		return
	}
	f.turns.Add(-1)
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.counters[counter]
	u.turns.leave(g)
	s.tidy(counter, u)
}

// Turns returns a channel that is closed when the requests that have a Turn now have ended it; nil if none has. A
// request that came later would take the room that one of them waits for, although a unit of its own client's
// request before is still on its way.
func (f *Receipts) Turns(counter uint64) <-chan struct{} {
	if f.turns.Load() == 0 {
		return nil
	}
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.counters[counter]; u != nil {
		return u.turns.left()
	}
	return nil
}
