package fallback

import (
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	shardCount = 64 // the bits of an integer
	setCount   = 256
	ways       = 4
	// overtakes is how much earlier, in ms, a decision may have been made than one that
	// was heard of before it. More than that is a clock that has stepped back.
	overtakes = 10_000
)

// lastSeen is what the store was last heard to have counted on each key: 65,536 of them
// at most, in 2 MB. It is lossy. A new key takes the place of one that is over, or
// that has used no larger share of its limit; those that deny therefore stay when many
// others come. A zone loses no key to another zone while it has no more than its even
// share of a set.
type lastSeen struct {
	seed   maphash.Seed
	shards [shardCount]shard
}

// shard holds the keys with the same upper bits of their hash. mu guards all that is
// known of a key, and whatever is done to its counts in this process.
type shard struct {
	sets [setCount]set
	mu   sync.Mutex
	_    [120]byte // keeps the locks of two shards apart
}

// set is two cache lines long.
type set [ways]entry

// entry is what is known of a key; the zero value is of none.
type entry struct {
	hash  uint64
	stamp int64 // ms: the decision that it is from; see note
	until int64 // ms on this process's clock: nothing of it counts any more
	use   use
}

// use is what was used of a key's limits: the units, of the limit that has most of
// them, and in the lowest 8 bits how full the fullest limit is, up to 255.
type use int64

func (u use) units() int64 { return int64(u >> 8) }
func (u use) level() use   { return u & 0xff }

// below orders by how full a limit is, then by units.
func (u use) below(o use) bool {
	if u.level() != o.level() {
		return u.level() < o.level()
	}
	return u < o
}

func useOf(units, limit int64) use {
	if units >= limit {
		return use(units)<<8 | 0xff
	}
	return use(units)<<8 | use(float64(units)/float64(limit)*255)
}

// and returns the larger units, and the higher level.
func (u use) and(o use) use { return max(u>>8, o>>8)<<8 | max(u.level(), o.level()) }

func newLastSeen() *lastSeen { return &lastSeen{seed: maphash.MakeSeed()} }

// hash tells counters apart. Clients cannot know which keys get the same. The lower 16
// bits are those of the zone.
func (k *lastSeen) hash(c *window.Charge) uint64 {
	zone := bits.RotateLeft64(maphash.String(k.seed, c.Zone), 32) ^
		bits.RotateLeft64(maphash.String(k.seed, c.Algorithm.Name()), 16)
	return (maphash.String(k.seed, c.Key)^zone)&^0xffff | zone&0xffff
}

func sameZone(a, b uint64) bool { return (a^b)&0xffff == 0 }

func (k *lastSeen) shard(hash uint64) *shard { return &k.shards[hash>>58] }

// note keeps what the store decided on a request that was sent at `asked` and answered at
// `heard`, both in ms. Answers may arrive out of order. Without Decision.At, a decision counts
// as newer than another only if its request was sent after the answer of the other arrived.
//
// Only an admitted request with something left of its limits lowers what is known: a denial
// may be a remembered one, and if nothing is left, more may have been used than the limit
// tells.
func (k *lastSeen) note(asked, heard int64, charges []window.Charge, ds []window.Decision) {
	allowed := window.Allowed(ds)
	for i := range charges {
		own := ds[:len(charges[i].Policies)]
		ds = ds[len(own):]
		if engine.IsHeld(&charges[i]) {
			continue
		}
		e, lowers, reset := entry{hash: k.hash(&charges[i])}, allowed, int64(0)
		for j := range own {
			d := &own[j]
			e.use = e.use.and(useOf(max(0, d.Limit-d.Remaining), d.Limit))
			reset = max(reset, d.ResetAfter.Milliseconds()+1)
			lowers = lowers && d.Remaining > 0
		}
		e.until = heard + reset
		made := own[0].At
		if e.stamp = made; made == 0 {
			made, e.stamp = asked, heard
		}
		s := k.shard(e.hash)
		s.mu.Lock()
		s.note(heard, made, e, lowers, charges[i].Lease.Units > 0)
		s.mu.Unlock()
	}
}

// note keeps e, of a decision that was made at a time in ms, or with a lease that was
// taken then. mu is held.
func (s *shard) note(now, made int64, e entry, lowers, leased bool) {
	old := s.find(e.hash)
	if old == nil || old.until <= now {
		if old == nil && e.use.units() > 0 {
			old = s.victim(now, e)
		}
		if old != nil {
			*old = e
		}
		return
	}
	newer := made > old.stamp || made < old.stamp-overtakes && !leased
	if !newer {
		e.stamp = old.stamp
	}
	if !newer || !lowers {
		e.use, e.until = e.use.and(old.use), max(e.until, old.until)
	}
	*old = e
}

func (s *shard) set(hash uint64) *set { return &s.sets[hash>>50%setCount] }

func (s *shard) find(hash uint64) *entry {
	set := s.set(hash)
	for i := range set {
		if set[i].hash == hash {
			return &set[i]
		}
	}
	return nil
}

// victim returns the entry whose place e takes, or nil if e is to be forgotten. An
// entry that is over is best, else the least used one among those that may go for e:
//
//   - A zone below its even share of the set takes from zones above theirs.
//   - A zone at or above its share replaces its own entries, or takes from a larger zone.
func (s *shard) victim(now int64, e entry) *entry {
	set := s.set(e.hash)
	for i := range set {
		if set[i].until <= now {
			return &set[i]
		}
	}
	sizes, own, zones := set.sizes(e)
	share := ways / zones
	var least *entry
	for i := range set {
		if sameZone(set[i].hash, e.hash) {
			if own < share {
				continue
			}
		} else if sizes[i] <= max(own, share) {
			continue
		}
		if least == nil || set[i].use.below(least.use) {
			least = &set[i]
		}
	}
	if least == nil || least.use.level() > e.use.level() {
		return nil
	}
	return least
}

// sizes returns how many entries each entry's zone has in the set, how many e's zone
// has, and the number of zones with e's.
func (s *set) sizes(e entry) (sizes [ways]int, own, zones int) {
	zones = 1
	for i := range s {
		first := true // of its zone
		for j := range s {
			if sameZone(s[i].hash, s[j].hash) {
				sizes[i]++
				first = first && i <= j
			}
		}
		switch {
		case sameZone(s[i].hash, e.hash):
			own = sizes[i]
		case first:
			zones++
		}
	}
	return sizes, own, zones
}

// takeOut returns the units that may still count, and whether there may be more, and
// forgets them. It reports whether anything was known. mu is held.
func (s *shard) takeOut(now int64, hash uint64) (used int64, full, ok bool) {
	e := s.find(hash)
	if e == nil {
		return 0, false, false
	}
	used, full, ok = e.use.units(), e.use.level() == 0xff, e.until > now
	*e = entry{}
	return used, full, ok
}

// gaveBack takes units from what is known. mu is held.
func (s *shard) gaveBack(hash uint64, units int64) {
	if e := s.find(hash); e != nil {
		e.use = use(max(0, e.use.units()-units))<<8 | min(e.use.level(), 0xfe)
	}
}

// lock locks the shards of the hashes in ascending order, and returns them, a bit each.
func (k *lastSeen) lock(hashes []uint64) (locked uint64) {
	for _, hash := range hashes {
		locked |= 1 << (hash >> 58)
	}
	for rest := locked; rest != 0; rest &= rest - 1 {
		k.shards[bits.TrailingZeros64(rest)].mu.Lock()
	}
	return locked
}

func (k *lastSeen) unlock(locked uint64) {
	for ; locked != 0; locked &= locked - 1 {
		k.shards[bits.TrailingZeros64(locked)].mu.Unlock()
	}
}
