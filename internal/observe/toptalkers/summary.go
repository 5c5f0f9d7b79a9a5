package toptalkers

import "math"

// Entries is how many keys a summary has.
const Entries = 256

// MaxKey is how many bytes of a key are kept.
const MaxKey = 64

// summary is the Space-Saving summary of a stream of keys with units (Metwally, Agrawal and
// El Abbadi, 2005). A key without an entry takes the one with the lowest count, and that count as its
// error. So each count is at most error too high, a key without an entry has no more units
// than floor, and floor is at most total/Entries.
type summary struct {
	total   int64
	used    int
	entries [Entries]entry
	heap    [Entries]counter    // of the entries in use; no count is below that of its parent
	index   [2 * Entries]uint16 // place + 1 by hash, with linear probing; 0 is free
}

type entry struct {
	hash   uint64 // of the whole key, which tells it from others
	error  int64
	at     uint8 // in heap
	length uint8
	cut    bool
	key    [MaxKey]byte // or what Label makes of it
}

// counter is the count of an entry. Counts are together, as order is made of them alone.
type counter struct {
	count int64
	place uint8 // in entries
}

// clear forgets everything.
func (s *summary) clear() {
	s.total, s.used = 0, 0
	clear(s.index[:])
}

// add adds units of a key, which are above 0.
func (s *summary) add(hash uint64, key string, units int64, label Label) {
	s.total = sum(s.total, units)
	if place, ok := s.find(hash); ok {
		at := s.entries[place].at
		s.heap[at].count = sum(s.heap[at].count, units)
		s.down(at)
		return
	}
	if s.used < Entries {
		place := uint8(s.used)
		s.used++
		s.entries[place].at, s.entries[place].error = place, 0
		s.heap[place] = counter{units, place}
		s.write(place, hash, key, label)
		s.up(place)
		return
	}
	lowest := &s.heap[0]
	e := &s.entries[lowest.place]
	s.remove(e.hash)
	e.error, lowest.count = lowest.count, sum(lowest.count, units)
	s.write(lowest.place, hash, key, label)
	s.down(0)
}

// write gives the entry at a place to a key.
func (s *summary) write(place uint8, hash uint64, key string, label Label) {
	e := &s.entries[place]
	e.hash, e.cut = hash, false
	if label != nil {
		e.length = uint8(copy(e.key[:], label(e.key[:0], key)))
	} else {
		e.length, e.cut = uint8(copy(e.key[:], key)), len(key) > MaxKey
	}
	slot := hash % uint64(len(s.index))
	for s.index[slot] != 0 {
		slot = (slot + 1) % uint64(len(s.index))
	}
	s.index[slot] = uint16(place) + 1
}

// find returns the place of the key with a hash.
func (s *summary) find(hash uint64) (place uint8, ok bool) {
	slot, ok := s.slot(hash)
	if !ok {
		return 0, false
	}
	return uint8(s.index[slot] - 1), true
}

// slot returns where in index the key with a hash is.
func (s *summary) slot(hash uint64) (slot uint64, ok bool) {
	for slot = hash % uint64(len(s.index)); s.index[slot] != 0; slot = (slot + 1) % uint64(len(s.index)) {
		if s.entries[s.index[slot]-1].hash == hash {
			return slot, true
		}
	}
	return 0, false
}

// remove takes the key with a hash out of index. Those behind it move up, so that probing
// finds them.
func (s *summary) remove(hash uint64) {
	const slots = uint64(2 * Entries)
	free, ok := s.slot(hash)
	if !ok {
		return
	}
	for next := (free + 1) % slots; s.index[next] != 0; next = (next + 1) % slots {
		home := s.entries[s.index[next]-1].hash % slots
		if (next-home)%slots >= (next-free)%slots { // it may stand at free
			s.index[free] = s.index[next]
			free = next
		}
	}
	s.index[free] = 0
}

// floor returns the most that a key without an entry has.
func (s *summary) floor() int64 {
	if s.used < Entries {
		return 0
	}
	return s.heap[0].count
}

// down restores the order of heap below i, whose count has grown.
func (s *summary) down(i uint8) {
	at, own := int(i), s.heap[i]
	for child := 2*at + 1; child < s.used; child = 2*at + 1 {
		if child+1 < s.used && s.heap[child+1].count < s.heap[child].count {
			child++
		}
		if own.count <= s.heap[child].count {
			break
		}
		s.put(at, s.heap[child])
		at = child
	}
	s.put(at, own)
}

// up restores the order of heap above i, which is new.
func (s *summary) up(i uint8) {
	at, own := int(i), s.heap[i]
	for parent := (at - 1) / 2; at > 0 && own.count < s.heap[parent].count; parent = (at - 1) / 2 {
		s.put(at, s.heap[parent])
		at = parent
	}
	s.put(at, own)
}

func (s *summary) put(at int, c counter) {
	s.heap[at] = c
	s.entries[c.place].at = uint8(at)
}

// sum returns a + b, or the highest number. Neither is below 0.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
