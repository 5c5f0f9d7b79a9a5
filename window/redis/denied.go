package redis

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// longestDenial is the longest that a denial is remembered: what another
	// process resets, gives back or allows is seen here within that time.
	longestDenial = time.Second
	// denialBytes is what the remembered denials of a store take at most.
	denialBytes = 16 << 20
	// denialShare limits the time for which a denial is remembered to window/denialShare. If
	// the server's clock steps back in that time, units count for a window from when the
	// server is asked again, which is up to that time later.
	denialShare = 10
	// denialOverhead is what one takes besides its key and decisions, about, and
	// answerOverhead what each of the other charges does.
	denialOverhead = 280
	answerOverhead = 80
	// decisionBytes is the size of a window.Decision.
	decisionBytes = 56
	// policyBytes is the size of a window.Policy.
	policyBytes = 16
)

// denials remembers charges that were denied, and denies requests that make one of them
// again without asking the server, even while that is away. A denial holds until the first of
// the charge's limits that denied has room, and no longer than longestDenial or a part of its
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

// denial is a remembered charge that was denied. It does not change.
type denial struct {
	answer
	others   []answer // to the other charges of the request
	asked    moment
	answered time.Duration
	ends     time.Duration
	slot     uint16 // of the counter
}

// answer is what was decided on a charge.
type answer struct {
	key       string // see appendDenied
	decisions []window.Decision
	policies  []window.Policy
}

// covers reports whether a denial under the limits of a holds under others with the same windows:
// what is above a limit is above every smaller one.
func (a *answer) covers(policies []window.Policy) bool {
	for i := range policies {
		if policies[i].Limit > a.policies[i].Limit {
			return false
		}
	}
	return true
}

// under returns a decision on a limit as it is under a smaller one. When there is room for that is not
// known: it is not later than when nothing is used any more.
func under(d window.Decision, was, is window.Policy, cost int64) window.Decision {
	if was.Limit == is.Limit {
		return d
	}
	d.Limit -= was.Limit - is.Limit
	d.Remaining = max(0, d.Remaining-(was.Limit-is.Limit))
	switch {
	case cost == 0 || d.Allowed && cost <= d.Remaining:
	case cost > d.Limit:
		d.Allowed, d.RetryAfter = false, window.Never
	default:
		d.Allowed, d.RetryAfter = false, max(d.RetryAfter, d.ResetAfter, time.Millisecond)
	}
	return d
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
// fit; or nil. Those on a remembered charge are the ones that were made then, but for the time
// that has passed: RetryAfter is no earlier than it was, and At goes on with it. What remains
// may be less than it says if others were charged since. See other for the rest.
func (d *denials) answer(asked moment, charges []window.Charge, room []window.Decision) []window.Decision {
	var buf [512]byte
	for i := range charges {
		found := d.find(asked.at, appendDenied(buf[:0], &charges[i]), &charges[i])
		switch {
		case found == nil:
		case len(charges) == 1:
			return found.appendTo(room[:0], asked.at, &charges[i])
		default:
			return d.complete(asked.at, charges, i, found, room[:0])
		}
	}
	return nil
}

// complete appends the decisions on a request of several charges. The charge at is the
// first that is known to be denied, by found.
func (d *denials) complete(now time.Duration, charges []window.Charge, at int, found *denial, ds []window.Decision) []window.Decision {
	var buf [512]byte
	for i := range charges {
		if i == at {
			ds = found.appendTo(ds, now, &charges[i])
			continue
		}
		key := appendDenied(buf[:0], &charges[i])
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
func (d *denials) find(now time.Duration, key []byte, c *window.Charge) *denial {
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

// passed is how long ago the denial was heard of, in whole milliseconds.
func (one *denial) passed(now time.Duration) time.Duration {
	return max(0, now-one.answered).Truncate(time.Millisecond)
}

// appendTo appends the decisions on a charge that the denial covers.
func (one *denial) appendTo(ds []window.Decision, now time.Duration, c *window.Charge) []window.Decision {
	passed := one.passed(now)
	for i, d := range one.decisions {
		ds = append(ds, under(later(d, passed), one.policies[i], c.Policies[i], c.Cost))
	}
	return ds
}

// other appends decisions on a charge that is not known to be denied, of a request that one
// denies: those that were made together with the denial, or else those on a counter of which
// nothing is spent. The server was not asked, and nothing is charged. A limit that is not
// known to deny any more is taken to have room for the cost.
func (one *denial) other(ds []window.Decision, now time.Duration, c *window.Charge, key []byte) []window.Decision {
	passed := one.passed(now)
	for i := range one.others {
		if one.others[i].key != string(key) || !slices.Equal(one.others[i].policies, c.Policies) {
			continue
		}
		for _, d := range one.others[i].decisions {
			d = later(d, passed)
			if !d.Allowed && d.RetryAfter != window.Never {
				d.Allowed, d.RetryAfter, d.Remaining = true, 0, min(d.Limit, max(d.Remaining, c.Cost))
			}
			ds = append(ds, d)
		}
		return ds
	}
	first := len(ds)
	ds = append(ds, make([]window.Decision, len(c.Policies))...)
	at := later(one.decisions[0], passed).At
	window.History(nil).Look(at, c, ds[first:])
	window.History(nil).Explain(at, c, ds[first:], false)
	for i := range ds[first:] {
		d := &ds[first+i]
		d.At, d.Remaining = at, max(0, d.Remaining)
	}
	return ds
}

// later returns a decision as it looks after passed, a whole number of milliseconds. Times
// that were not 0 remain at least one millisecond.
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

// remember keeps the decisions on a request, for each of its charges that they deny. Asked is
// the time before the request was sent.
func (d *denials) remember(asked moment, charges []window.Charge, decisions []window.Decision) {
	if window.Allowed(decisions) { // or an error
		return
	}
	var buf [512]byte
	all := make([]answer, len(charges))
	ds := slices.Clone(decisions)
	for i := range charges {
		n := len(charges[i].Policies)
		all[i] = answer{string(appendDenied(buf[:0], &charges[i])), ds[:n:n], slices.Clone(charges[i].Policies)}
		ds = ds[n:]
	}
	now := d.now()
	for i := range charges {
		wait, ok := d.wait(&charges[i], all[i].decisions)
		if !ok || asked.at+wait-now < time.Millisecond {
			continue
		}
		one := &denial{answer: all[i], asked: asked, answered: now, ends: asked.at + wait, slot: d.slot(&charges[i])}
		for j := range all {
			if j != i {
				one.others = append(one.others, all[j])
			}
		}
		d.add(one, now)
	}
}

// wait returns how long decisions on a charge hold, and whether they deny it.
func (d *denials) wait(c *window.Charge, decisions []window.Decision) (wait time.Duration, denied bool) {
	wait = d.longest
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
func (d *denials) add(one *denial, now time.Duration) {
	shard := d.shard([]byte(one.key))
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.add(one)
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
	return now >= one.asked.at && now < one.ends && d.slots[one.slot].Load() <= one.asked.tick
}

func (d *denials) slot(c *window.Charge) uint16 {
	var buf [256]byte
	return uint16(maphash.Bytes(d.seed, engine.AppendKey(buf[:0], c)) % uint64(len(d.slots)))
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
	n := denialOverhead + one.answer.size()
	for i := range one.others {
		n += answerOverhead + one.others[i].size()
	}
	return n
}

func (a *answer) size() int { return len(a.key) + (decisionBytes+policyBytes)*len(a.decisions) }

// appendDenied is appendCharge without the limits, unless their algorithm is gcra.
func appendDenied(dst []byte, c *window.Charge) []byte {
	if _, ok := c.Algorithm.(window.GCRA); ok {
		return appendCharge(dst, c, c.Cost)
	}
	dst = appendOptions(dst, c, c.Cost)
	for _, p := range c.Policies {
		dst = binary.AppendVarint(dst, p.Window.Milliseconds())
	}
	return dst
}

// appendCharge appends all of a charge that its decisions depend on, in a way
// that can be read back, so that no two charges are the same bytes.
func appendCharge(dst []byte, c *window.Charge, cost int64) []byte {
	dst = appendOptions(dst, c, cost)
	for _, p := range c.Policies {
		dst = binary.AppendVarint(binary.AppendVarint(dst, p.Limit), p.Window.Milliseconds())
	}
	return dst
}

// appendOptions appends all of it but the policies.
func appendOptions(dst []byte, c *window.Charge, cost int64) []byte {
	var options []int64
	native := window.NativeOff // counts apart
	switch a := c.Algorithm.(type) {
	case window.Slices: // where the type is known, the options need no allocation
		options = window.FactsOf(a).Options(a)
	case window.Layers:
		options = window.FactsOf(a).Options(a)
	case window.Stream:
		options = window.FactsOf(a).Options(a)
	case window.GCRA:
		options, native = window.FactsOf(a).Options(a), a.Native
	default:
		options = window.FactsOf(a).Options(a)
	}
	dst = binary.AppendVarint(engine.AppendKey(dst, c), int64(native)) // a byte that no name has
	dst = binary.AppendVarint(binary.AppendVarint(dst, c.Pack), cost)
	dst = binary.AppendVarint(dst, int64(len(options)))
	for _, o := range options {
		dst = binary.AppendVarint(dst, o)
	}
	return binary.AppendVarint(dst, int64(len(c.Policies)))
}
