package memory

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// inFlight is a request in the store: its accounts, one per charge, and the
// shards that it has locked.
type inFlight struct {
	accounts []account
	shards   []int
	store    *Store
	now      int64  // ms; read once all shards are locked
	key      []byte // scratch
}

// account is what a request works on for one charge. The shard's lock is held.
type account struct {
	shard    *shard
	charge   *window.Charge
	hash     uint64
	key      []byte // the counter's name; inFlight.key holds the bytes
	slot     int32  // none: the key is new, and kept only if it is spent on
	overflow bool   // the key is new, there is no room, and all such keys share
	state    window.State
	ds       []window.Decision
}

var requests = sync.Pool{New: func() any { return new(inFlight) }}

// lock looks up the charges' keys and locks their shards, in ascending order.
func (s *Store) lock(charges []window.Charge) *inFlight {
	r := requests.Get().(*inFlight)
	r.store = s
	for i := range charges {
		c := &charges[i]
		start := len(r.key)
		r.key = window.AppendKey(r.key, c)
		hash := maphash.Bytes(s.seed, r.key[start:])
		shard := int(hash % shardCount)
		r.accounts = append(r.accounts, account{shard: &s.shards[shard], charge: c, hash: hash, slot: none})
		if !slices.Contains(r.shards, shard) {
			r.shards = append(r.shards, shard)
		}
		r.accounts[i].key = r.key[start:len(r.key):len(r.key)]
	}
	slices.Sort(r.shards)
	for _, i := range r.shards {
		s.shards[i].mu.Lock()
	}
	r.now = s.now()
	for i := range r.accounts {
		r.accounts[i].open(r.now, r.accounts[:i])
	}
	return r
}

func (r *inFlight) unlock() {
	for i := range r.accounts {
		if a := &r.accounts[i]; a.slot != none {
			a.shard.slots[a.slot].busy = false
		}
	}
	for _, i := range r.shards {
		r.store.shards[i].mu.Unlock()
	}
	clear(r.accounts)
	r.accounts, r.shards, r.key, r.store = r.accounts[:0], r.shards[:0], r.key[:0], nil
	requests.Put(r)
}

// open finds the state of the account's key. A new key for which there is no
// room shares the overflow key of its zone, with others of the same request
// (earlier), too: nobody passes uncounted.
func (a *account) open(now int64, earlier []account) {
	a.slot = a.shard.find(a.hash, a.key)
	if a.slot == none && a.shard.full() && a.shard.victim(now) == none {
		a.overflow = true
		a.key = window.AppendKey(nil, &window.Charge{Zone: a.charge.Zone, Algorithm: a.charge.Algorithm})
		a.key = append(a.key, "{overflow}"...) // no other key holds a brace
		a.hash = maphash.Bytes(maphashSeed, a.key)
		a.slot = a.shard.find(a.hash, a.key)
	}
	if a.slot != none {
		a.shard.slots[a.slot].busy = true
		a.state = a.shard.slots[a.slot].state
		return
	}
	for i := range earlier {
		if e := &earlier[i]; a.overflow && e.shard == a.shard && bytes.Equal(e.key, a.key) {
			a.state = e.state
			return
		}
	}
	a.state = a.charge.Algorithm.NewState()
}

// maphashSeed is for overflow keys, which stay in the shard of the key that they
// stand for.
var maphashSeed = maphash.MakeSeed()

// keep stores the state after units were spent.
func (a *account) keep(now int64, ds []window.Decision) {
	if a.slot == none && a.overflow {
		a.slot = a.shard.find(a.hash, a.key) // kept for another of the same request
	}
	if a.slot == none {
		a.slot = a.shard.insert(now, a.hash, string(a.key), a.state, a.overflow)
	}
	sl := &a.shard.slots[a.slot]
	sl.used, sl.expires = 0, now
	for _, d := range ds {
		sl.expires = max(sl.expires, now+d.ResetAfter.Milliseconds())
		sl.used = max(sl.used, share(d))
	}
	a.hold(now, ds)
}

// hold notes until when the key denies, for it must not be evicted before.
func (a *account) hold(now int64, ds []window.Decision) {
	sl := &a.shard.slots[a.slot]
	for _, d := range ds {
		wait := d.RetryAfter
		if wait == window.Never {
			wait = 0
		}
		if d.Remaining == 0 {
			wait = max(wait, d.EffectiveWindow)
		}
		if wait > 0 {
			sl.heldUntil = max(sl.heldUntil, min(now+wait.Milliseconds(), sl.expires))
		}
	}
}

// share says how much of its limit a key has used, from 0 to 255.
func share(d window.Decision) uint8 {
	if d.Limit == 0 {
		return 0
	}
	return uint8(255 - min(d.Remaining, d.Limit)*255/d.Limit)
}
