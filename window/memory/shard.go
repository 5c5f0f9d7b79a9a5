package memory

import (
	"sync"
	"unsafe"
)

// none is the slot of a key that is not there.
const none int32 = -1

// chunkLen is the number of slots that are allocated at once, once a shard holds that
// number. They fill 32 KiB.
const chunkLen = int32(32 << 10 / unsafe.Sizeof(slot{}))

// cacheLine is at least as long as what cores hand each other at once.
const cacheLine = 128

// shard holds a part of the keys. mu guards everything but limits.
//
// Slots lie without gaps: the last one moves to where another is dropped. No step
// is longer than a chunk, however many keys come or go, but that the index and the list
// of large histories move when they have doubled.
type shard struct {
	mu     sync.Mutex
	index  index
	chunks [][]slot // all full but the last
	len    int32    // slots in use
	hand   int32    // where the search for a slot to evict goes on
	zones  zones
	larges []large // without gaps, too
	limits *limits
	_      [cacheLine]byte // no cache line in common with the next shard
}

// slot holds a key: 128 bytes, which begin where a cache line does, and without a pointer
// for the garbage collector to follow. What a look-up compares lies at both ends, so that it
// waits for both lines of 64 bytes at once.
type slot struct {
	key       key
	expires   int64 // ms: when nothing of the history matters any more
	heldUntil int64 // ms: the key denies until then, so it is not evicted
	zone      zoneID
	large     int32  // where the history is in the shard's, if it is not here; or none
	keepLow   uint32 // how long units are kept, in ms: the horizon's window
	keepHigh  uint16
	small     [smallSize]byte
	used      uint8 // share of the limit that was used when last spent on
	overflow  bool  // does not count as a key, and is not evicted
	busy      bool  // a request is at work on it, so it is neither evicted nor moved
	size      uint8 // of the history, if it is here
}

func (s *shard) slot(i int32) *slot {
	u := uint32(i) // which takes fewer steps to divide
	return &s.chunks[u/uint32(chunkLen)][u%uint32(chunkLen)]
}

func (s *shard) find(n *name, overflow bool) int32 {
	for i := s.index.first(n.hash); i != none; i = s.index.next(i) {
		sl := s.slot(i)
		if sl.overflow == overflow && sl.key == n.key && s.zones.is(sl.zone, n.zone) {
			return i
		}
	}
	return none
}

func (s *shard) full() bool {
	return s.len > 0 && s.limits.keys.Load() >= s.limits.maxKeys.Load()
}

// insert adds a key, and returns its slot.
func (s *shard) insert(now int64, n *name, overflow bool) int32 {
	at := none
	if !overflow {
		at = s.makeRoom(now, n)
		s.limits.keys.Add(1)
	}
	if at == none {
		at = s.extend()
	}
	*s.slot(at) = slot{key: n.key, zone: s.zones.join(n.zone), large: none, overflow: overflow, busy: true}
	s.index.add(at, n.hash)
	return at
}

// extend returns a new slot at the end.
func (s *shard) extend() int32 {
	c := s.len / chunkLen
	if int(c) == len(s.chunks) {
		s.chunks = append(s.chunks, nil)
		if c > 0 { // the first one grows with use
			s.chunks[c] = make([]slot, 0, chunkLen)
		}
	}
	s.chunks[c] = append(s.chunks[c], slot{})
	s.len++
	return s.len - 1
}

// vacate forgets the key in slot i.
func (s *shard) vacate(i int32) {
	sl := s.slot(i)
	if !sl.overflow {
		s.limits.keys.Add(-1)
	}
	s.zones.leave(sl.zone)
	if sl.large != none {
		s.dropLarge(sl)
	}
	s.index.remove(i)
}

// drop forgets the key in slot i, and gives the slot up: the last one, which is
// not busy, takes its place.
func (s *shard) drop(i int32) {
	s.vacate(i)
	s.index.giveUp(i)
	s.len--
	if i != s.len {
		sl := s.slot(i)
		*sl = *s.slot(s.len)
		if sl.large != none {
			s.larges[sl.large].slot = i
		}
	}
	c := s.len / chunkLen
	*s.slot(s.len) = slot{}
	s.chunks[c] = s.chunks[c][:s.len%chunkLen]
	s.shrink()
}

// shrink gives memory back: the last chunk, once the one before it is half empty,
// and the first one by and by.
func (s *shard) shrink() {
	last := int32(len(s.chunks) - 1)
	switch first := s.chunks[0]; {
	case last > 0 && s.len <= last*chunkLen-chunkLen/2:
		s.chunks[last] = nil
		s.chunks = s.chunks[:last]
	case last == 0 && cap(first) > 4*len(first)+8:
		s.chunks[0] = append(make([]slot, 0, 2*len(first)), first...)
	}
}
