package topkeys

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
	heap    [Entries]uint8      // places of the entries in use; no count is below that of its parent
	index   [2 * Entries]uint16 // place + 1 by hash, with linear probing; 0 is free
}

type entry struct {
	hash         uint64 // of the whole key, which stands for it
	count, error int64
	at           uint8 // in heap
	length       uint8
	cut          bool
	key          [MaxKey]byte // or what Label makes of it
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
		e := &s.entries[place]
		e.count = sum(e.count, units)
		s.down(e.at)
		return
	}
	if s.used < Entries {
		place := uint8(s.used) //nolint:gosec // below 256
		s.used++
		s.entries[place] = entry{at: place}
		s.heap[place] = place
		s.write(place, hash, key, units, label)
		s.up(place)
		return
	}
	place := s.heap[0]
	s.remove(s.entries[place].hash)
	s.write(place, hash, key, units, label)
	s.down(0)
}

// write gives a place to a key. What its entry has counted becomes the error.
func (s *summary) write(place uint8, hash uint64, key string, units int64, label Label) {
	e := &s.entries[place]
	e.hash, e.error, e.count, e.cut = hash, e.count, sum(e.count, units), false
	if label != nil {
		e.length = uint8(copy(e.key[:], label(e.key[:0], key))) //nolint:gosec // 64 at most
	} else {
		e.length, e.cut = uint8(copy(e.key[:], key)), len(key) > MaxKey //nolint:gosec // 64 at most
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
	return uint8(s.index[slot] - 1), true //nolint:gosec // below 256
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
	return s.entries[s.heap[0]].count
}

// down restores the order of heap below i, whose count has grown.
func (s *summary) down(i uint8) {
	for {
		child := 2*int(i) + 1
		if child >= s.used {
			return
		}
		if child+1 < s.used && s.countAt(child+1) < s.countAt(child) {
			child++
		}
		if s.countAt(int(i)) <= s.countAt(child) {
			return
		}
		s.swap(i, uint8(child)) //nolint:gosec // below 256
		i = uint8(child)        //nolint:gosec // below 256
	}
}

// up restores the order of heap above i, which is new.
func (s *summary) up(i uint8) {
	for i > 0 {
		parent := (i - 1) / 2
		if s.countAt(int(parent)) <= s.countAt(int(i)) {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s *summary) countAt(i int) int64 { return s.entries[s.heap[i]].count }

func (s *summary) swap(i, j uint8) {
	s.heap[i], s.heap[j] = s.heap[j], s.heap[i]
	s.entries[s.heap[i]].at, s.entries[s.heap[j]].at = i, j
}

// sum returns a + b, or the highest number. Neither is below 0.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
