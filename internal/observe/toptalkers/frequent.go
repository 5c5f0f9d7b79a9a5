package toptalkers

import (
	"cmp"
	"slices"
	"sync"
)

// Frequent knows which keys came most often. The zero value has none, and takes its memory with the first
// key. It is safe for concurrent use. Of adds at the same time some may be missed, so that none waits.
type Frequent struct {
	mu   sync.Mutex // guards seen
	seen *summary
}

// Add adds a key with its hash.
func (f *Frequent) Add(hash uint64, key string) {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = new(summary)
	}
	f.seen.add(hash, key, 1, nil)
}

// Take returns the keys that came most often, n at most, and begins anew.
func (f *Frequent) Take(n int) []Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		return nil
	}
	var all []Key
	for _, c := range f.seen.heap[:f.seen.used] {
		e := &f.seen.entries[c.place]
		all = append(all, Key{Key: e.shown(), Count: c.count, Error: e.error, Cut: e.cut})
	}
	f.seen.clear()
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Certain(), a.Certain()), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(len(all), n)]
}
