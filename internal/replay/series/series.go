package series

import (
	"encoding/binary"
	"math"
	"time"
	"unsafe"
)

// Set has the times of requests by key. It is not safe for concurrent use while Add is called; afterwards, several
// goroutines may read it.
type Set struct {
	windows  []int64 // ms
	longest  int64   // ms
	most     int64   // bytes that keys may take, and as much again their times
	table    *table
	blocks   blocks
	base     int64 // ms since 1970 of the first request
	last     int64 // ms since base of the latest request
	requests int64
	folds    []uint32 // of a folded key: requests whose times are gone, then the peak in each window
	folded   int64    // requests whose times are gone
	least    []uint32 // for each window the largest peak that was folded
}

// entry is a key. It has no pointers.
type entry struct {
	hash  uint32
	text  uint32
	first uint32 // block
	last  uint32 // block
	n     uint32 // requests
	fold  uint32 // place in folds + 1; 0: all times are kept
	late  uint64 // the last time in ms since base, and how many bytes of the last block are used
}

const entrySize = int(unsafe.Sizeof(entry{}))

func (e *entry) fill() int     { return int(e.late & 0xffff) } // #nosec G115 -- at most 256
func (e *entry) setFill(n int) { e.late = e.late&^0xffff | uint64(n) }
func (e *entry) time() int64   { return int64(e.late >> 16) }
func (e *entry) setTime(ms int64) {
	e.late = e.late&0xffff | uint64(ms)<<16 // #nosec G115 -- not negative
}

// New returns an empty Set that finds the peaks in windows. It takes half of memory for keys, and half for times.
func New(windows []time.Duration, memory int64) *Set {
	s := &Set{most: memory / 2, table: newTable(), base: math.MinInt64, least: make([]uint32, len(windows))}
	s.blocks.most = int(min(max(memory/2/slabSize, 1), (1<<29*grain)/slabSize))
	for _, w := range windows {
		s.windows = append(s.windows, w.Milliseconds())
		s.longest = max(s.longest, w.Milliseconds())
	}
	return s
}

// maxKey is how many bytes of a key count.
const maxKey = 64 << 10

// Add counts a request of a key, at a time in nanoseconds since 1970. Times must not step back: what does counts as
// having come with the request before. Times are kept in milliseconds, as the stores count.
func (s *Set) Add(key string, ns int64) error {
	ms := floorMilli(ns)
	if s.base == math.MinInt64 {
		s.base = ms
	}
	s.last = max(s.last, ms-s.base)
	if len(key) > maxKey {
		key = key[:maxKey]
	}
	e, isNew := s.table.find(key)
	if isNew && s.table.n&0xfff == 0 && s.keyBytes() > s.most {
		return ErrMemory
	}
	var b [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(b[:], uint64(s.last-e.time())) // #nosec G115 -- s.last is the latest
	for !s.blocks.write(e, b[:n]) {
		if !s.fold() {
			return ErrMemory
		}
		n = binary.PutUvarint(b[:], uint64(s.last-e.time())) // #nosec G115 -- s.last is the latest
	}
	e.setTime(s.last)
	e.n++
	s.requests++
	return nil
}

// floorMilli returns whole milliseconds, rounded down also before 1970.
func floorMilli(ns int64) int64 {
	ms := ns / 1e6
	if ns%1e6 < 0 {
		ms--
	}
	return ms
}

// keyBytes returns how much memory the keys take.
func (s *Set) keyBytes() int64 { return s.table.bytes() + int64(4*cap(s.folds)) }

// Keys returns how many keys there are.
func (s *Set) Keys() int { return s.table.n }

// Requests returns how many requests were counted.
func (s *Set) Requests() int64 { return s.requests }

// Folded returns how many keys have lost times to the bound on memory, of how many requests, and for each window the
// largest peak that was folded: what limits from there on would have denied is known exactly.
func (s *Set) Folded() (keys int, requests int64, peaks []int) {
	for _, p := range s.least {
		peaks = append(peaks, int(p))
	}
	return len(s.folds) / (1 + len(s.windows)), s.folded, peaks
}

// Key is what a Set knows of a key.
type Key struct {
	Name     string
	Requests int
	Times    []int64 // ms since 1970
	Peaks    []int   // for each window the most requests in it
	Folded   int     // requests whose times are gone: all of them came before Times
	// FoldedPeaks are the peaks when the key was folded. Of limits that are not below them, Times say all: what was
	// folded is outside of every window that a request of Times sees, or was within these limits.
	FoldedPeaks []int
}

// Reader reads keys of a Set, and has memory to do so. Each goroutine needs its own.
type Reader struct {
	set   *Set
	bytes []byte
	key   Key
}

// Reader returns a Reader.
func (s *Set) Reader() *Reader { return &Reader{set: s, key: Key{Peaks: make([]int, len(s.windows))}} }

// Key returns the i-th key, in the order in which they came. It is valid until the next call.
func (r *Reader) Key(i int) *Key {
	s, k := r.set, &r.key
	e := s.table.at(i)
	k.Name, k.Requests, k.Folded = string(s.table.text(e)), int(e.n), 0
	k.FoldedPeaks = k.FoldedPeaks[:0]
	r.times(e)
	for j, w := range s.windows {
		k.Peaks[j] = Peak(k.Times, w)
	}
	if f := s.foldOf(e); f != nil {
		k.Folded = int(f[0])
		for j := range s.windows {
			k.FoldedPeaks = append(k.FoldedPeaks, int(f[1+j]))
			k.Peaks[j] = max(k.Peaks[j], int(f[1+j]))
		}
	}
	return k
}

// times decodes the times of e.
func (r *Reader) times(e *entry) {
	r.bytes = r.set.blocks.read(e, r.bytes[:0])
	times, at := r.key.Times[:0], r.set.base
	for b := r.bytes; len(b) > 0; {
		delta, n := binary.Uvarint(b)
		at += int64(delta) // #nosec G115 -- written by Add
		times = append(times, at)
		b = b[n:]
	}
	r.key.Times = times
}

// Peak returns the most times, which are sorted and in ms, within a window of a length in ms. The window holds what is
// less than its length apart, as those of the stores do.
func Peak(times []int64, window int64) int {
	peak, from := 0, 0
	for i, t := range times {
		for t-times[from] >= window {
			from++
		}
		peak = max(peak, i-from+1)
	}
	return peak
}
