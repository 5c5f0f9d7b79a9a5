// Package denials remembers what was denied, so that the server need not be asked again.
package denials

import (
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/fingerprint"
)

const (
	// longest is the longest that a denial is remembered: what another
	// process resets, gives back or allows is seen here within that time.
	longest = time.Second
	// MostBytes is what the remembered denials of a store take at most.
	MostBytes = 16 << 20
	// denialShare limits the time for which a denial is remembered to window/denialShare. If
	// the server's clock steps back in that time, units count for a window from when the
	// server is asked again, which is up to that time later.
	denialShare = 10
)

// Memory remembers charges that were denied, and denies requests that make one of them
// again without asking the server, even while that is away. A denial holds until the first of
// the charge's limits that denied has room, and no longer than longest or a part of its
// window: what others spend until then only makes it last. The time counts from before the request
// was sent, so that it is over no later than on the server.
//
// A denial is remembered per charge: counter, cost, windows and options. It also denies
// smaller limits with the same windows, but for gcra, where a limit is a speed as well. With
// another cost or a higher limit it is another charge. The charge is compared byte by byte, so
// that no client can be taken for another. Other zones of a request make no difference: a client that
// is denied in one cannot reach the server by new keys in another.
//
// For that second at most, a request may be denied that the server would let pass:
// if another process resets its counter or gives back to it; if the counter meets
// other policies or options, under which it forgets sooner; with weighted slices of
// several lengths, of which new ones cut old ones short; and in a Cluster, if it met
// units that another process was about to give back.
//
// It has no goroutine: what is over goes when it is found.
type Memory struct {
	seed    maphash.Seed
	Now     func() time.Duration // the time since any moment
	Longest time.Duration        // a denial is remembered no longer

	// Each time that a counter gets room other than by the passing of time, the
	// tick goes up, and is noted in the slot of the counter. A denial that was
	// asked for before that is not used any more, nor are those of the counters
	// that share the slot.
	tick  atomic.Uint64
	slots [1 << 13]atomic.Uint64

	shards [64]denialShard
}

// Moment is when a request was about to be sent.
type Moment struct {
	At   time.Duration
	tick uint64
}

// New returns an empty memory. now tells the time since any moment.
func New(now func() time.Duration) *Memory {
	return &Memory{seed: maphash.MakeSeed(), Now: now, Longest: longest}
}

// Ask returns the time, for Answer and Remember.
func (d *Memory) Ask() Moment { return Moment{d.Now(), d.tick.Load()} }

// Answer returns the decisions on a request that is known to be denied, in room if they
// fit; or nil. Those on a remembered charge are the ones that were made then, but for the time
// that has passed: RetryAfter is no earlier than it was, and At goes on with it. What remains
// may be less than it says if others were charged since. See other for the rest.
func (d *Memory) Answer(asked Moment, charges []window.Charge, room []window.Decision) []window.Decision {
	var buf [512]byte
	for i := range charges {
		found := d.find(asked.At, fingerprint.AppendDenied(buf[:0], &charges[i]), &charges[i])
		switch {
		case found == nil:
		case len(charges) == 1:
			return found.appendTo(room[:0], asked.At, &charges[i])
		default:
			return d.complete(asked.At, charges, i, found, room[:0])
		}
	}
	return nil
}

// complete appends the decisions on a request of several charges. The charge at is the
// first that is known to be denied, by found.
func (d *Memory) complete(now time.Duration, charges []window.Charge, at int, found *denial, ds []window.Decision) []window.Decision {
	var buf [512]byte
	for i := range charges {
		if i == at {
			ds = found.appendTo(ds, now, &charges[i])
			continue
		}
		key := fingerprint.AppendDenied(buf[:0], &charges[i])
		if i > at {
			if one := d.find(now, key, &charges[i]); one != nil {
				ds = one.appendTo(ds, now, &charges[i])
				continue
			}
		}
		ds = found.other(ds, now, &charges[i], key)
	}
	return ds
}

// find returns the denial of a charge, which has the key, if it is in force; or nil.
func (d *Memory) find(now time.Duration, key []byte, c *window.Charge) *denial {
	shard := d.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	found := shard.byKey[string(key)]
	if found != nil && !d.holds(found, now) {
		shard.drop(found)
		return nil
	}
	if found != nil && !found.covers(c.Policies) {
		return nil
	}
	return found
}

// Remember keeps the decisions on a request, for each of its charges that they deny. Asked is
// the time before the request was sent.
func (d *Memory) Remember(asked Moment, charges []window.Charge, decisions []window.Decision) {
	if window.Allowed(decisions) { // or an error
		return
	}
	var buf [512]byte
	all := make([]answer, len(charges))
	ds := slices.Clone(decisions)
	for i := range charges {
		n := len(charges[i].Policies)
		all[i] = answer{string(fingerprint.AppendDenied(buf[:0], &charges[i])), ds[:n:n], slices.Clone(charges[i].Policies)}
		ds = ds[n:]
	}
	now := d.Now()
	for i := range charges {
		wait, ok := d.wait(&charges[i], all[i].decisions)
		if !ok || asked.At+wait-now < time.Millisecond {
			continue
		}
		one := &denial{answer: all[i], asked: asked, answered: now, ends: asked.At + wait, slot: d.Slot(&charges[i])}
		for j := range all {
			if j != i {
				one.others = append(one.others, all[j])
			}
		}
		d.add(one, now)
	}
}

// wait returns how long decisions on a charge hold, and whether they deny it.
func (d *Memory) wait(c *window.Charge, decisions []window.Decision) (wait time.Duration, denied bool) {
	wait = d.Longest
	for i := range decisions {
		switch one := &decisions[i]; {
		case one.Allowed:
			continue
		case one.RetryAfter == window.Never:
		case one.At == 0: // CL.THROTTLE: up to two seconds late, see window.Native
			wait = min(wait, one.RetryAfter-2*time.Second)
		default:
			wait = min(wait, one.RetryAfter, c.Policies[i].Window/denialShare)
		}
		denied = true
	}
	return wait, denied
}

// add keeps a denial. It also looks at a few others, at random: those are dropped that are
// over, and all while there are too many.
func (d *Memory) add(one *denial, now time.Duration) {
	shard := d.shard([]byte(one.key))
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.add(one)
	looked := 0
	for _, other := range shard.byKey {
		full := shard.bytes > MostBytes/len(d.shards)
		if looked++; looked > 4 && !full {
			return
		}
		if full || !d.holds(other, now) {
			shard.drop(other)
		}
	}
}

// Forget makes the denials of a counter count no more. It is called after the
// server has made room: whoever asked before that has an older tick.
func (d *Memory) Forget(c *window.Charge) {
	slot, tick := &d.slots[d.Slot(c)], d.tick.Add(1)
	for old := slot.Load(); old < tick && !slot.CompareAndSwap(old, tick); old = slot.Load() {
	}
}

// holds reports whether a denial is still to be used. A clock that has stepped back
// to before it ends it.
func (d *Memory) holds(one *denial, now time.Duration) bool {
	return now >= one.asked.At && now < one.ends && d.slots[one.slot].Load() <= one.asked.tick
}

// Slot returns the number of the slot of a counter.
func (d *Memory) Slot(c *window.Charge) uint16 {
	var buf [256]byte
	return uint16(maphash.Bytes(d.seed, engine.AppendKey(buf[:0], c)) % uint64(len(d.slots)))
}

func (d *Memory) shard(key []byte) *denialShard {
	return &d.shards[maphash.Bytes(d.seed, key)%uint64(len(d.shards))]
}

// Count returns how many denials are remembered, and the bytes that they are said to take.
func (d *Memory) Count() (n, bytes int) {
	for i := range d.shards {
		shard := &d.shards[i]
		shard.mu.Lock()
		n += len(shard.byKey)
		bytes += shard.bytes
		shard.mu.Unlock()
	}
	return n, bytes
}
