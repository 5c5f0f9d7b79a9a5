package slidingwindow

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// distinct estimates how many keys there were, within about 3 %, from their hashes: a HyperLogLog
// (Flajolet et al., 2007). It is safe for concurrent use.
type distinct struct{ registers [registers]atomic.Uint32 }

const registers = 1 << registerBits

const registerBits = 10

func (d *distinct) add(hash uint64) {
	rank := uint32(bits.LeadingZeros64(hash<<registerBits|1<<(registerBits-1))) + 1
	r := &d.registers[hash>>(64-registerBits)]
	for old := r.Load(); rank > old; old = r.Load() {
		if r.CompareAndSwap(old, rank) {
			return
		}
	}
}

// take returns the estimate, and begins anew.
func (d *distinct) take() int64 {
	var sum float64
	var zeros int
	for i := range d.registers {
		rank := d.registers[i].Swap(0)
		sum += math.Ldexp(1, -int(rank))
		if rank == 0 {
			zeros++
		}
	}
	estimate := 0.7213 / (1 + 1.079/registers) * registers * registers / sum
	if estimate <= 2.5*registers && zeros > 0 {
		estimate = registers * math.Log(registers/float64(zeros))
	}
	return int64(math.Round(estimate))
}

// frequent knows which keys came most often, by the Space-Saving algorithm (Metwally et al., 2005). It
// is safe for concurrent use. Of adds at the same time some may be missed, so that none waits.
type frequent struct {
	mu     sync.Mutex // guards what follows
	n      int        // entries in use
	hashes [frequentKeys]uint64
	times  [frequentKeys]int64 // at most; it may count those of a key that it displaced
	excess [frequentKeys]int64 // by which times is too high, at most
	keys   [frequentKeys]shortKey
}

const frequentKeys = 16

// shortKey is the beginning of a key.
type shortKey struct {
	length int
	text   [64]byte
}

func (f *frequent) add(hash uint64, key string) {
	if !f.mu.TryLock() {
		return
	}
	defer f.mu.Unlock()
	for i, other := range f.hashes[:f.n] {
		if other == hash {
			f.times[i]++
			return
		}
	}
	least := f.n
	if f.n < frequentKeys {
		f.n++
		f.times[least] = 0
	} else {
		least = 0
		for i := range f.times {
			if f.times[i] < f.times[least] {
				least = i
			}
		}
	}
	f.excess[least] = f.times[least]
	f.times[least]++
	f.hashes[least] = hash
	f.keys[least].length = copy(f.keys[least].text[:], key)
}

// frequentKey is a key, and how many times it came at least.
type frequentKey struct {
	Key   string `json:"key"`
	Times int64  `json:"times"`
}

// take returns the keys that came most often, and begins anew.
func (f *frequent) take(most int) []frequentKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []frequentKey
	for i := range f.n {
		k := &f.keys[i]
		all = append(all, frequentKey{strings.ToValidUTF8(string(k.text[:k.length]), ""), f.times[i] - f.excess[i]})
	}
	f.n = 0
	slices.SortFunc(all, func(a, b frequentKey) int { return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Key, b.Key)) })
	return all[:min(len(all), most)]
}
