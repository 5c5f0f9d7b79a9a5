package memory

import (
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// none is the slot of a key that is not there.
const none int32 = -1

// candidates is how many slots are looked at to find one to evict.
const candidates = 32

// shard holds a part of the keys. mu guards everything but limits.
type shard struct {
	mu     sync.Mutex
	index  map[uint64]int32 // hash of the key → first slot of that hash
	slots  []slot
	free   int32 // first free slot; they are chained by next
	live   int32
	hand   int32 // where the search for a slot to evict goes on
	limits *limits
	_      [64]byte // no cache line in common with the next shard
}

// slot holds a key. A free slot has no state.
type slot struct {
	key       string
	hash      uint64
	state     window.State
	expires   int64 // ms: when nothing of the state matters any more
	heldUntil int64 // ms: the key denies until then, so it is not evicted
	next      int32 // next slot of the same hash, or next free slot
	used      uint8 // share of the limit that was used when last spent on
	overflow  bool  // does not count as a key, and is not evicted
	busy      bool  // a request is at work on it, so it is not evicted
}

func (s *shard) init(l *limits) {
	s.index, s.free, s.limits = make(map[uint64]int32), none, l
}

func (s *shard) find(hash uint64, key []byte) int32 {
	i, ok := s.index[hash]
	if !ok {
		return none
	}
	for i != none && s.slots[i].key != string(key) {
		i = s.slots[i].next
	}
	return i
}

func (s *shard) full() bool {
	return s.live > 0 && s.limits.keys.Load() >= s.limits.maxKeys.Load()
}

// victim returns a slot to evict, or none. An expired key is best, else the one
// that has used the smallest share of its limit. A key that denies is never
// evicted: nobody gets rid of a denial by a flood of keys. The hand stays, so
// that insert finds the same.
func (s *shard) victim(now int64) int32 {
	best := none
	for k := range min(candidates, int32(len(s.slots))) {
		i := (s.hand + k) % int32(len(s.slots))
		sl := &s.slots[i]
		switch {
		case sl.state == nil || sl.overflow || sl.busy:
		case sl.expires <= now:
			return i
		case sl.heldUntil > now:
		case best == none || sl.used < s.slots[best].used:
			best = i
		}
	}
	return best
}

func (s *shard) insert(now int64, hash uint64, key string, state window.State, overflow bool) int32 {
	if !overflow {
		for range 2 { // one for this key, and one to get below a lowered cap
			if !s.full() {
				break
			}
			if i := s.victim(now); i != none {
				s.drop(i)
			}
			s.hand = (s.hand + candidates) % int32(len(s.slots))
		}
		s.limits.keys.Add(1)
	}
	i := s.free
	if i == none {
		s.slots = append(s.slots, slot{})
		i = int32(len(s.slots) - 1)
	} else {
		s.free = s.slots[i].next
	}
	first, ok := s.index[hash]
	if !ok {
		first = none
	}
	s.slots[i] = slot{key: key, hash: hash, state: state, next: first, overflow: overflow, busy: true}
	s.index[hash] = i
	s.live++
	return i
}

// drop frees slot i.
func (s *shard) drop(i int32) {
	sl := &s.slots[i]
	if first := s.index[sl.hash]; first != i {
		for s.slots[first].next != i {
			first = s.slots[first].next
		}
		s.slots[first].next = sl.next
	} else if sl.next != none {
		s.index[sl.hash] = sl.next
	} else {
		delete(s.index, sl.hash)
	}
	if !sl.overflow {
		s.limits.keys.Add(-1)
	}
	*sl = slot{next: s.free}
	s.free = i
	s.live--
}
