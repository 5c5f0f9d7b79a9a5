package banbook

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
)

// shards is a power of two.
const shards = 32

// known holds what this process knows of members that are banned, or were: until the time at which the ban was to end. It is
// safe for concurrent use.
type known struct {
	shards [shards]shard
	seed   maphash.Seed
}

type shard struct {
	sync.RWMutex // guards of
	of           map[string]*fact
}

// fact is what is known of a member. It does not change.
type fact struct {
	bans.Record
	member
	// When the ban ends, or would have ended if it had not been lifted: by the clock of the book.
	ends   int64
	lifted bool
	prefix netip.Prefix // of a network
}

// bans reports whether the ban is in force.
func (f *fact) bans(now int64) bool { return f != nil && now < f.ends && !f.lifted }

func (k *known) shard(name []byte) *shard {
	return &k.shards[maphash.Bytes(k.seed, name)%shards]
}

// get returns what is known of a member; nil if nothing is.
func (k *known) get(name []byte) *fact {
	s := k.shard(name)
	s.RLock()
	defer s.RUnlock()
	return s.of[string(name)]
}

// put notes what is known of a member, or forgets it if f is nil. It returns what was known before.
func (k *known) put(name string, f *fact) (before *fact) {
	s := k.shard([]byte(name))
	s.Lock()
	defer s.Unlock()
	before = s.of[name]
	if f == nil {
		delete(s.of, name)
	} else {
		if s.of == nil {
			s.of = make(map[string]*fact)
		}
		s.of[name] = f
	}
	return before
}

// each calls do for everything that is known.
func (k *known) each(do func(name string, f *fact)) {
	for i := range k.shards {
		s := &k.shards[i]
		s.RLock()
		for name, f := range s.of {
			do(name, f)
		}
		s.RUnlock()
	}
}

// tooMany returns the names of what may be forgotten: what is over, and if there is still too much, what ends first.
func (k *known) tooMany(now int64) (gone []string) {
	type end struct {
		name string
		ends int64
	}
	var left []end
	k.each(func(name string, f *fact) {
		if f.ends <= now {
			gone = append(gone, name)
		} else {
			left = append(left, end{name, f.ends})
		}
	})
	if more := len(left) - bans.MostRecords; more > 0 {
		slices.SortFunc(left, func(a, b end) int { return cmp.Compare(a.ends, b.ends) })
		for _, e := range left[:more] {
			gone = append(gone, e.name)
		}
	}
	return gone
}

// recent remembers which members have struck within the last second, as far as it has room: a denied flood of one key does
// not take a lock for each request.
type recent [4096]atomic.Uint64

// isNew reports whether a member has not struck within a second, and notes that it does.
func (r *recent) isNew(hash uint64, now int64) bool {
	slot := &r[hash%uint64(len(r))]
	next := hash&^(1<<40-1) | uint64(now)&(1<<40-1)
	old := slot.Load()
	if since := (next - old) & (1<<40 - 1); old != 0 && (old^next)>>40 == 0 && since < 1000 {
		return false
	}
	slot.Store(next)
	return true
}
