// Package inflight counts receipts that are not settled yet.
package inflight

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Receipts counts, by counter, the receipts that are not settled yet, so that a client hears of
// room that may come back, and a request that follows an answer finds what that has given back.
type Receipts struct {
	seed maphash.Seed
	// How often units were given back, by the counter's lower bits.
	backs  [1024]atomic.Uint64
	shards [64]shard
}

type shard struct {
	mu       sync.Mutex // guards all; held for a few instructions
	counters map[uint64]*unsettled
	_        [48]byte // keeps the locks of two shards apart
}

// unsettled are the receipts of a counter.
type unsettled struct {
	open    int           // whose answers are not known yet
	landing int           // that are being given back
	landed  chan struct{} // closed when no receipt is landing; nil: nobody waits
}

// New returns Receipts without any.
func New() *Receipts { return &Receipts{seed: maphash.MakeSeed()} }

// Counter returns the number of a charge's counter. Two may share one.
func (f *Receipts) Counter(c *window.Charge) uint64 {
	return maphash.String(f.seed, c.Key) ^ maphash.String(f.seed, c.Zone)>>1
}

func (f *Receipts) BacksOf(counter uint64) *atomic.Uint64 { return &f.backs[counter%1024] }

func (f *Receipts) shard(counter uint64) *shard { return &f.shards[counter>>58] }

// Change adds to the receipts of a counter.
func (f *Receipts) Change(counter uint64, open, landing int) {
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
	u.open += open
	u.landing += landing
	if u.landing == 0 && u.landed != nil {
		close(u.landed)
		u.landed = nil
	}
	if u.open == 0 && u.landing == 0 {
		delete(s.counters, counter)
	}
}

// Any reports whether a counter has receipts that are not settled.
func (f *Receipts) Any(counter uint64) bool {
	s := f.shard(counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters[counter] != nil
}

// Wait waits until what is being given back on a counter is back, or ctx ends. It reports whether
// there was anything.
func (f *Receipts) Wait(ctx context.Context, counter uint64, longest time.Duration) bool {
	s := f.shard(counter)
	s.mu.Lock()
	u := s.counters[counter]
	if u == nil || u.landing == 0 {
		s.mu.Unlock()
		return false
	}
	if u.landed == nil {
		u.landed = make(chan struct{})
	}
	landed := u.landed
	s.mu.Unlock()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-landed:
	case <-ctx.Done():
	case <-timer.C:
	}
	return true
}
