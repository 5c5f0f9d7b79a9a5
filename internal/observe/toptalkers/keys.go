package toptalkers

import (
	"bytes"
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

// Certain returns a lower bound of the key's units.
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

// copies are summaries to read beside those that are written.
var copies = sync.Pool{New: func() any { return new([2]summary) }}

// Top returns n keys at most.
func (k *Keys) Top(now time.Duration, n int) Top {
	both := copies.Get().(*[2]summary)
	defer copies.Put(both)
	t := Top{Since: k.copy(now, both)}
	var best []found // n at most, in order
	for i := range both {
		own, other := &both[i], &both[1-i]
		t.Total = sum(t.Total, own.total)
		for _, c := range own.heap[:own.used] {
			e := &own.entries[c.place]
			f := found{e, Key{Count: c.count, Error: e.error, Cut: e.cut}}
			place, ok := other.find(e.hash)
			switch {
			case !ok: // the other half may have dropped it
				f.Count, f.Error = sum(f.Count, other.floor()), sum(f.Error, other.floor())
			case i > 0:
				continue // it was found in the first half
			default:
				same := &other.entries[place]
				f.Count, f.Error = sum(f.Count, other.heap[same.at].count), sum(f.Error, same.error)
			}
			best = insert(best, f, n)
		}
	}
	for _, f := range best {
		f.Key.Key = f.entry.shown()
		t.Keys = append(t.Keys, f.Key)
	}
	return t
}

// found is a key with its entry, in one of the halves.
type found struct {
	entry *entry
	Key
}

// insert adds f to what is best, n of these at most.
func insert(best []found, f found, n int) []found {
	at := len(best)
	for at > 0 && f.before(&best[at-1]) {
		at--
	}
	if at >= n {
		return best
	}
	if len(best) == n {
		best = best[:n-1]
	}
	return slices.Insert(best, at, f)
}

// before reports whether the key comes before another one.
func (f *found) before(other *found) bool {
	return cmp.Or(cmp.Compare(other.Certain(), f.Certain()), cmp.Compare(other.Count, f.Count), bytes.Compare(f.entry.text(), other.entry.text())) < 0
}

// copy returns when the first half began, and copies both to where they can be read.
func (k *Keys) copy(now time.Duration, to *[2]summary) (since time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn(now)
	for i, s := range []*summary{k.current, k.previous} {
		if s != nil {
			to[i] = *s
		} else {
			to[i].clear()
		}
	}
	return max(k.first, k.began-Half)
}

// text returns what is kept of the key.
func (e *entry) text() []byte { return e.key[:e.length] }

// shown returns what is kept of the key, in whole characters.
func (e *entry) shown() string {
	text := string(e.text())
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
