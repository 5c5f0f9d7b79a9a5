package redis

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// longestDenial is the longest that a denial is remembered: what another
	// process resets, gives back or allows is seen here within that time.
	longestDenial = time.Second
	// denialBytes is what the remembered denials of a store take at most.
	denialBytes = 16 << 20
	// denialShare is the part of a window for which a denial is remembered at most. If
	// the server's clock steps back meanwhile, units count for a window from when the server
	// is asked again: that is so much later.
	denialShare = 10
	// denialOverhead is what one takes besides its key and decisions, about.
	denialOverhead = 240
	// decisionBytes is the size of a window.Decision.
	decisionBytes = 56
)

// denials remembers requests that were denied, and denies them again without
// asking the server, even while that is away. A denial holds until the first of
// the limits that denied has room, and no longer than longestDenial, or a part of its
// window: what others spend in the meantime only makes it last. The time counts from before the request
// was sent, so that it is over no later than on the server.
//
// What is remembered is the request as a whole: counters, costs, policies and
// options. With another cost or limit it is another request. It is compared byte
// by byte, so that no client can be taken for another.
//
// For that second at most, a request may be denied that the server would let pass:
// if another process resets its counter or gives back to it; if the counter meets
// other policies or options, under which it forgets sooner; with weighted slices of
// several lengths, of which new ones cut old ones short; and in a Cluster, if it met
// units that another process was about to give back.
//
// It has no goroutine: what is over goes when it is found.
type denials struct {
	seed    maphash.Seed
	now     func() time.Duration // see Store.clock
	longest time.Duration

	// Each time that a counter gets room other than by the passing of time, the
	// tick goes up, and is noted in the slot of the counter. A denial that was
	// asked for before that is not used any more, nor are those of the counters
	// that share the slot.
	tick  atomic.Uint64
	slots [1 << 13]atomic.Uint64

	shards [64]denialShard
}

// denialShard holds the denials whose keys have the same hash.
type denialShard struct {
	mu    sync.Mutex // guards all
	byKey map[string]*denial
	bytes int
	_     [64]byte // keeps the locks of two shards apart
}

// denial is a remembered answer. It does not change.
type denial struct {
	key       string // see appendRequest
	decisions []window.Decision
	asked     moment
	answered  time.Duration
	ends      time.Duration
	slots     []uint16 // of the counters that denied
}

// moment is when a request was about to be sent.
type moment struct {
	at   time.Duration
	tick uint64
}

func newDenials(now func() time.Duration) *denials {
	return &denials{seed: maphash.MakeSeed(), now: now, longest: longestDenial}
}

// ask returns the time, for answer and remember.
func (d *denials) ask() moment { return moment{d.now(), d.tick.Load()} }

// answer returns the decisions on a request that is known to be denied, in room if they
// fit; or nil.
// They are those that were made then, but for the time that has passed: RetryAfter
// is no earlier than it was, and At goes on with it. What remains may be less than
// it says if others were charged since.
func (d *denials) answer(asked moment, charges []window.Charge, room []window.Decision) []window.Decision {
	var buf [512]byte
	key := appendRequest(buf[:0], charges)
	shard := d.shard(key)
	shard.mu.Lock()
	found := shard.byKey[string(key)]
	if found != nil && !d.holds(found, asked.at) {
		shard.drop(found)
		found = nil
	}
	shard.mu.Unlock()
	if found == nil {
		return nil
	}
	room = append(room[:0], found.decisions...)
	passed := max(0, asked.at-found.answered).Truncate(time.Millisecond)
	for i := range room {
		room[i] = later(room[i], passed)
	}
	return room
}

// later returns a decision as it looks when a whole number of milliseconds has
// passed. A time that was there is at least one of them.
func later(d window.Decision, passed time.Duration) window.Decision {
	for _, t := range []*time.Duration{&d.RetryAfter, &d.ResetAfter, &d.EffectiveWindow} {
		if *t > 0 && *t != window.Never {
			*t = max(time.Millisecond, *t-passed)
		}
	}
	if d.At > 0 {
		d.At += passed.Milliseconds()
	}
	return d
}

// remember keeps the decisions on a request if they deny it. Asked is the time
// before the request was sent.
func (d *denials) remember(asked moment, charges []window.Charge, decisions []window.Decision) {
	if window.Allowed(decisions) { // or an error
		return
	}
	wait, rest := d.longest, decisions
	for i := range charges {
		for j, p := range charges[i].Policies {
			switch one := &rest[j]; {
			case one.Allowed, one.RetryAfter == window.Never:
			case one.At == 0: // CL.THROTTLE: up to two seconds late, see window.Native
				wait = min(wait, one.RetryAfter-2*time.Second)
			default:
				wait = min(wait, one.RetryAfter, p.Window/denialShare)
			}
		}
		rest = rest[len(charges[i].Policies):]
	}
	now := d.now()
	if asked.at+wait-now < time.Millisecond {
		return
	}
	one := &denial{decisions: slices.Clone(decisions), asked: asked, answered: now, ends: asked.at + wait}
	for i := range charges {
		own := decisions[:len(charges[i].Policies)]
		decisions = decisions[len(own):]
		if !window.Allowed(own) {
			one.slots = append(one.slots, d.slot(&charges[i]))
		}
	}
	var buf [512]byte
	key := appendRequest(buf[:0], charges)
	one.key = string(key)
	shard := d.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.add(one)
	// A few others, at random: those go that are over, and all while there are too many.
	looked := 0
	for _, other := range shard.byKey {
		full := shard.bytes > denialBytes/len(d.shards)
		if looked++; looked > 4 && !full {
			return
		}
		if full || !d.holds(other, now) {
			shard.drop(other)
		}
	}
}

// forget makes the denials of a counter count no more. It is called after the
// server has made room: whoever asked before that has an older tick.
func (d *denials) forget(c *window.Charge) {
	slot, tick := &d.slots[d.slot(c)], d.tick.Add(1)
	for old := slot.Load(); old < tick && !slot.CompareAndSwap(old, tick); old = slot.Load() {
	}
}

// holds reports whether a denial is still to be used. A clock that has stepped back
// to before it ends it.
func (d *denials) holds(one *denial, now time.Duration) bool {
	if now < one.asked.at || now >= one.ends {
		return false
	}
	for _, slot := range one.slots {
		if d.slots[slot].Load() > one.asked.tick {
			return false
		}
	}
	return true
}

func (d *denials) slot(c *window.Charge) uint16 {
	var buf [256]byte
	return uint16(maphash.Bytes(d.seed, window.AppendKey(buf[:0], c)) % uint64(len(d.slots)))
}

func (d *denials) shard(key []byte) *denialShard {
	return &d.shards[maphash.Bytes(d.seed, key)%uint64(len(d.shards))]
}

func (s *denialShard) add(one *denial) {
	if old := s.byKey[one.key]; old != nil {
		s.drop(old)
	}
	if s.byKey == nil {
		s.byKey = make(map[string]*denial)
	}
	s.byKey[one.key] = one
	s.bytes += one.size()
}

func (s *denialShard) drop(one *denial) {
	delete(s.byKey, one.key)
	s.bytes -= one.size()
}

func (one *denial) size() int {
	return denialOverhead + len(one.key) + decisionBytes*len(one.decisions)
}

// appendRequest appends all of a request that its decisions depend on, in a way
// that can be read back, so that no two requests are the same bytes.
func appendRequest(dst []byte, charges []window.Charge) []byte {
	for i := range charges {
		dst = appendCharge(dst, &charges[i], charges[i].Cost)
	}
	return dst
}

func appendCharge(dst []byte, c *window.Charge, cost int64) []byte {
	var options []int64
	native := window.NativeOff // counts apart
	switch a := c.Algorithm.(type) {
	case window.Slices: // where the type is known, the options need no allocation
		options = a.Options()
	case window.Layers:
		options = a.Options()
	case window.Stream:
		options = a.Options()
	case window.GCRA:
		options, native = a.Options(), a.Native
	default:
		options = a.Options()
	}
	dst = binary.AppendVarint(window.AppendKey(dst, c), int64(native)) // a byte that no name has
	dst = binary.AppendVarint(binary.AppendVarint(dst, c.Pack), cost)
	dst = binary.AppendVarint(dst, int64(len(options)))
	for _, o := range options {
		dst = binary.AppendVarint(dst, o)
	}
	dst = binary.AppendVarint(dst, int64(len(c.Policies)))
	for _, p := range c.Policies {
		dst = binary.AppendVarint(binary.AppendVarint(dst, p.Limit), p.Window.Milliseconds())
	}
	return dst
}
