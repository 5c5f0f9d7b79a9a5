// Package topkeys finds the keys of a stream that have the most units, in bounded memory. It does not
// import Caddy.
package topkeys

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
)

// Half is how long keys are counted together. Top covers the current half and the one before it.
const Half = time.Minute

// Label appends what is kept and shown in the place of a key, MaxKey bytes at most. It must not keep dst.
type Label func(dst []byte, key string) []byte

// Keys counts the units of keys. It takes no more than 64 KiB. It is safe for concurrent use: a lock is
// held for the time of one update, or for as long as it takes to copy the entries.
type Keys struct {
	seed  maphash.Seed
	first time.Duration // when it was made

	mu       sync.Mutex    // guards what follows
	began    time.Duration // when the current half began
	current  *summary      // nil before the first key
	previous *summary      // nil before the second half
}

// New returns Keys without any. Times are those of one clock, from any beginning on.
func New(now time.Duration) *Keys {
	return &Keys{seed: maphash.MakeSeed(), first: now, began: now}
}

// Add adds units of a key; 0 and less are nothing. A label of nil keeps the first MaxKey bytes of the
// key. Whole keys are told apart, whatever is kept of them. Add allocates memory when a half
// begins, and not from the third one on.
func (k *Keys) Add(now time.Duration, key string, units int64, label Label) {
	if units <= 0 {
		return
	}
	hash := maphash.String(k.seed, key)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn(now)
	if k.current == nil {
		k.current = new(summary)
	}
	k.current.add(hash, key, units, label)
}

// turn begins a new half if it is time. k.mu must be held.
func (k *Keys) turn(now time.Duration) {
	passed := now - k.began
	if passed < Half {
		return
	}
	k.began += passed.Truncate(Half)
	k.current, k.previous = k.previous, k.current
	if k.current != nil {
		k.current.clear()
	}
	if passed >= 2*Half && k.previous != nil {
		k.previous.clear()
	}
}

// Top are the keys with the most units in a time.
type Top struct {
	Since time.Duration // of the clock
	Total int64         // units of all keys
	Keys  []Key         // the one with the most certain units first
}

// Key is a key with its units: Count at most, and Count - Error at least.
type Key struct {
	Key          string
	Count, Error int64
	Cut          bool // whether Key is the beginning of the key
}

// Certain returns the units that the key has at least.
func (k Key) Certain() int64 { return k.Count - k.Error }

// TopTenRatio returns the share that the first ten keys have of all units at least; 0 without any units.
func (t *Top) TopTenRatio() float64 {
	if t.Total == 0 {
		return 0
	}
	units := int64(0)
	for _, key := range t.Keys[:min(10, len(t.Keys))] {
		units = sum(units, key.Certain())
	}
	return float64(units) / float64(t.Total)
}

// half is what Top reads of a summary.
type half struct {
	entries      []entry
	counters     []counter
	floor, total int64
}

// Top returns n keys at most.
func (k *Keys) Top(now time.Duration, n int) Top {
	since, halves := k.copy(now)
	t := Top{Since: since}
	merged := make(map[uint64]Key)
	for i := range halves {
		own, other := &halves[i], &halves[1-i]
		t.Total = sum(t.Total, own.total)
		for _, c := range own.counters {
			e := &own.entries[c.place]
			key, ok := merged[e.hash]
			if !ok { // the other half may have dropped it
				key = Key{e.shown(), other.floor, other.floor, e.cut}
			} else { // it has not
				key.Count, key.Error = key.Count-own.floor, key.Error-own.floor
			}
			key.Count, key.Error = sum(key.Count, c.count), sum(key.Error, e.error)
			merged[e.hash] = key
		}
	}
	for _, key := range merged {
		t.Keys = append(t.Keys, key)
	}
	slices.SortFunc(t.Keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Certain(), a.Certain()), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	t.Keys = t.Keys[:min(n, len(t.Keys))]
	return t
}

// copy returns what both halves have, and when the first of them began.
func (k *Keys) copy(now time.Duration) (since time.Duration, halves [2]half) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn(now)
	for i, s := range []*summary{k.current, k.previous} {
		if s != nil {
			halves[i] = half{slices.Clone(s.entries[:s.used]), slices.Clone(s.heap[:s.used]), s.floor(), s.total}
		}
	}
	return max(k.first, k.began-Half), halves
}

// shown returns what is kept of the key, in whole characters.
func (e *entry) shown() string {
	text := string(e.key[:e.length])
	if !e.cut {
		return text
	}
	for cut := text; len(cut) > MaxKey-4; cut = cut[:len(cut)-1] {
		if strings.ToValidUTF8(cut, "") == cut {
			return cut
		}
	}
	return text
}
