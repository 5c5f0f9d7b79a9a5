package leases

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/fingerprint"
)

// leaseShard holds the counters whose names have the same hash.
type leaseShard struct {
	mu      sync.RWMutex // guards all but what the holders hold
	holders map[string]*Holder
	closed  bool
	_       [64]byte // keeps the locks of two shards apart
}

// HoldersPerShard bounds the memory: about 20 MB in all.
const HoldersPerShard = 1 << 10

// Holder is a counter, with certain policies and options, that may have a lease.
type Holder struct {
	mu        sync.Mutex    // guards all; never held while the server is asked
	seen      time.Duration // when it was last asked for
	size      int64         // of the last lease
	remaining int64         // what the limit had left when the server was last asked
	pause     time.Duration // no lease before
	lease     *lease        // nil: none
	fetch     *fetch        // nil: none
	gone      bool          // another holder may have taken its place, or the store is closed
}

// grow returns the size of the next lease, which is below two of the charge's cost
// if there should be none.
func (e *Holder) grow(c *window.Charge, now, life time.Duration) int64 {
	if e.size == 0 || now-e.seen > life || now < e.seen {
		e.size = c.Cost
	} else {
		e.size = min(c.Lease.Units, 2*max(e.size, c.Cost))
	}
	e.seen = now
	if now < e.pause {
		return 0
	}
	return min(e.size, e.remaining/2)
}

// Answered notes what the server said to a request without lease.
func (e *Holder) Answered(decisions []window.Decision) {
	if len(decisions) > 0 {
		e.mu.Lock()
		e.remaining = leastRemaining(decisions)
		e.mu.Unlock()
	}
}

// leastRemaining is what the tightest limit has left.
func leastRemaining(decisions []window.Decision) int64 {
	least := decisions[0].Remaining
	for i := range decisions {
		least = min(least, decisions[i].Remaining)
	}
	return least
}

// each calls visit with every holder, and its lock held.
func (l *Leases) each(visit func(*Holder)) {
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		all := make([]*Holder, 0, len(shard.holders))
		for _, e := range shard.holders {
			all = append(all, e)
		}
		shard.mu.Unlock()
		for _, e := range all {
			e.mu.Lock()
			visit(e)
			e.mu.Unlock()
		}
	}
}

// Holder returns that of a charge, or nil if there are too many.
func (l *Leases) Holder(c *window.Charge) *Holder {
	var buf [512]byte
	key := fingerprint.Append(buf[:0], c, 0)
	return l.shard(key).findOrAdd(key)
}

func (l *Leases) shard(key []byte) *leaseShard {
	return &l.shards[maphash.Bytes(l.seed, key)%uint64(len(l.shards))]
}

func (s *leaseShard) find(key []byte) *Holder {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.holders[string(key)]
}

// findOrAdd returns nil if there are too many to add one.
func (s *leaseShard) findOrAdd(key []byte) *Holder {
	if e := s.find(key); e != nil {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.holders[string(key)]; e != nil {
		return e
	}
	if s.closed || len(s.holders) >= HoldersPerShard && !s.evict() {
		return nil
	}
	if s.holders == nil {
		s.holders = make(map[string]*Holder)
	}
	e := new(Holder)
	s.holders[string(key)] = e
	return e
}

// evict makes room for another holder, in place of one without a lease.
func (s *leaseShard) evict() bool {
	looked := 0
	for key, e := range s.holders {
		if e.mu.TryLock() {
			e.gone = e.lease == nil && e.fetch == nil
			e.mu.Unlock()
			if e.gone {
				delete(s.holders, key)
				return true
			}
		}
		if looked++; looked == 8 {
			break
		}
	}
	return false
}
