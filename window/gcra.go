package window

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"
)

// GCRA lets Burst units pass at once, and then Limit more in every Window, evenly.
// It is the generic cell rate algorithm (ITU-T I.371), written as the leaky
// bucket that it equals: one that holds Burst units and leaks Limit per Window.
// In Redis it is a string of two numbers for each limit, whatever the traffic.
//
// The promise: in every interval (t-Window, t] at most Burst+Limit-1 units pass
// (2×Limit-1 unless Burst is set), and a charge is denied only if the bucket has
// no room for it. Decision.Limit is the burst: a cost above it never passes.
//
// Limits of one window may differ by request. All of them share the bucket of the
// window, and no decision takes units out of it before their time: the promise holds for
// the highest limit. A bucket that holds more than the limit of a request allows counts
// as a full one once a Window has passed since units were last spent, and denies the request until then.
//
// Windows may differ by request, too. Each has a bucket of its own, which goes on to count
// what requests of other windows spend; see gcraState.
//
// Units lose their time once they are in the bucket. GiveBack takes out only what
// cannot have leaked since they were spent. What it spends may be more than the bucket
// has room for.
type GCRA struct {
	usual

	// Units that may pass at once; 0 means the limit.
	Burst int64
	// Whether a store in Redis leaves the decision to the command CL.THROTTLE.
	Native Native
}

// Native tells whether CL.THROTTLE decides, the command of redis-cell and of Dragonfly for
// this algorithm. CL.THROTTLE decides on requests with exactly one limit. The window must be
// whole seconds, and a unit of it whole milliseconds: servers cut off the rest.
//
// CL.THROTTLE counts apart from the script, and answers in whole seconds, rounded up, or one
// more. It keeps only the time at which the bucket is empty, so that a raised limit must wait
// for units that were spent before. Decision.At is 0, and GiveBack and ChargeMore return an error.
type Native int

// Whether CL.THROTTLE is used.
const (
	NativeOff  Native = iota // never
	NativeAuto               // if the server has it
	NativeOn                 // yes; without it the store is unavailable
)

// check reports what is wrong with the options, in words for an operator.
func (a GCRA) check() error {
	switch {
	case a.Burst < 0:
		return fmt.Errorf("burst %d: must be greater than 0", a.Burst)
	case a.Native < NativeOff || a.Native > NativeOn:
		return fmt.Errorf("native %d is unknown", a.Native)
	}
	return nil
}

// longestDrain bounds, in ms, the time in which a full bucket runs empty, so that
// it fits a time.Duration.
const longestDrain = int64(math.MaxInt64 / time.Millisecond)

// nativeDrain is the same for CL.THROTTLE, which computes with nanoseconds since
// 1970.
const nativeDrain = int64(200 * 365 * 24 * time.Hour / time.Millisecond)

// checkPolicy reports why the algorithm cannot keep the policy, which is valid by
// itself, in words for an operator.
func (a GCRA) checkPolicy(p Policy) error {
	burst, window := a.atOnce(p), p.Window.Milliseconds()
	switch {
	case burst > MaxProduct/window:
		return fmt.Errorf("burst %d × window %s is too large: burst × milliseconds must not exceed 2^53", burst, p.Window)
	case p.Limit > 0 && burst*window/p.Limit > longestDrain:
		return fmt.Errorf("burst %d is too large for limit %d in %s: it would last for more than 292 years", burst, p.Limit, p.Window)
	case a.Native == NativeOff:
		return nil
	case p.Limit == 0:
		return errors.New("CL.THROTTLE takes no limit 0")
	case p.Window%time.Second != 0:
		return fmt.Errorf("CL.THROTTLE takes no window of %s, but whole seconds", p.Window)
	case window%p.Limit != 0:
		return fmt.Errorf("CL.THROTTLE takes no limit of %d in %s, of which a unit is no whole number of milliseconds", p.Limit, p.Window)
	case burst*window/p.Limit > nativeDrain:
		return fmt.Errorf("burst %d is too large for CL.THROTTLE: it would last for more than 200 years", burst)
	}
	return nil
}

// Name implements Algorithm.
func (GCRA) Name() string { return "gcra" }

// options implements Algorithm: burst (0: the limit).
func (a GCRA) options() []int64 { return []int64{a.Burst} }

// atOnce returns how many units may pass at once.
func (a GCRA) atOnce(p Policy) int64 {
	if a.Burst == 0 || p.Limit == 0 {
		return p.Limit
	}
	return a.Burst
}

// gcraState holds a bucket for each policy. A level is measured in units × ms of
// its window, so that all steps are whole numbers: a unit adds the window, and a
// millisecond takes the limit away. Its History is the time, and of each bucket the
// window and the level.
//
// # Windows that differ by request
//
// A bucket whose window the charge does not have is kept beside the charge's own. The
// history is then mixed: the time, 0, how many buckets are the charge's own, and of each
// bucket its window, level, limit and age. The age is how long before the time the bucket
// was an own one, in ms. A kept bucket leaks at its limit and gets what is spent, even
// if it cannot hold it.
//
// A bucket is kept until it has not been an own one for its window, or for as long as it
// takes to run empty if Burst is above the limit: see keeps. If there are too many, the one
// goes that would go first: see mostKept.
//
// A history that is not mixed does not tell limits. If such a bucket becomes a kept one, its
// limit is taken to be what is in the bucket: with Burst 0 that is at most the limit. If Burst
// is set, the bucket does not leak until it is an own one again.
type gcraState struct {
	at      int64 // ms: when the levels were as they are here
	own     int   // how many buckets are those of the last charge, in its order; the others follow
	buckets []gcraBucket
	terms   []gcraTerms // of each bucket, if the history is mixed
}

type (
	gcraBucket struct{ window, level int64 }
	gcraTerms  struct{ limit, age int64 }
)

// gcraRoom is the buckets of the usual request, which then needs no memory.
type gcraRoom [4]gcraBucket

// mostKept returns how many buckets are kept beside n own ones. A packed counter has
// room for seven buckets.
func mostKept(n int) int { return max(4, 7-n) }

func readGCRA(h History, room *gcraRoom) gcraState {
	s := gcraState{buckets: room[:0]}
	if len(h) == 0 {
		return s
	}
	all, mixed := numbers(h), false
	for s.at = all.next(); len(all) > 0; {
		b := gcraBucket{window: all.next(), level: all.next()}
		switch {
		case mixed:
			s.terms = append(s.terms, gcraTerms{limit: all.next(), age: all.next()})
		case b.window == 0:
			s.own, mixed = int(b.level), true
			continue
		}
		s.buckets = append(s.buckets, b)
	}
	if !mixed {
		s.own = len(s.buckets)
	}
	return s
}

func (s gcraState) write(h History) History {
	h = h[:0].appendNumbers(s.at)
	if s.terms != nil {
		h = h.appendNumbers(0, int64(s.own))
	}
	for k, b := range s.buckets {
		h = h.appendNumbers(b.window, b.level)
		if s.terms != nil {
			h = h.appendNumbers(s.terms[k].limit, s.terms[k].age)
		}
	}
	return h
}

// rest returns what is left of a level after a time.
func rest(level, elapsed, limit int64) int64 {
	high, gone := bits.Mul64(uint64(max(0, elapsed)), uint64(limit))
	if high > 0 || gone > uint64(level) {
		return 0
	}
	return level - int64(gone)
}

// poured returns a level with n units more, which is at most 2^53.
func poured(level, n, window int64) int64 {
	if n > (MaxProduct-level)/window {
		return MaxProduct
	}
	return level + n*window
}

// drain returns the time in ms until a level is gone; the whole window if it never is.
func drain(level int64, p Policy) int64 {
	switch {
	case level == 0:
		return 0
	case p.Limit == 0:
		return p.Window.Milliseconds()
	}
	return ceilDiv(level, p.Limit)
}

// bucket returns where the bucket of policy j is, or -1: limits may have come, gone or
// changed places. It is that of the same window; without one, the own one in its place,
// unless that is another policy's.
func (s gcraState) bucket(c *Charge, j int) int {
	window := c.Policies[j].Window.Milliseconds()
	if j < len(s.buckets) && s.buckets[j].window == window {
		return j
	}
	for k := range s.buckets {
		if s.buckets[k].window == window {
			return k
		}
	}
	if j >= s.own || policyOf(c, s.buckets[j].window, j) >= 0 {
		return -1
	}
	return j
}

// policyOf returns which policy has a window, given in ms: policy k if it does, else the
// first, or -1.
func policyOf(c *Charge, window int64, k int) int {
	if k < len(c.Policies) && c.Policies[k].Window.Milliseconds() == window {
		return k
	}
	for j, p := range c.Policies {
		if p.Window.Milliseconds() == window {
			return j
		}
	}
	return -1
}

// level returns how full the bucket of policy j is. What was measured in another window
// is converted, and cut to what the bucket can hold before it leaks.
//
// Unless raw is set, a bucket that holds more than the policy allows loses the excess when a window
// has passed since the last units were spent, and counts as full at that time. What is cut is then
// older than a window, so that a higher limit does not miss it either.
func (s gcraState) level(now int64, c *Charge, j int, raw bool) int64 {
	at := s.bucket(c, j)
	if at < 0 {
		return 0
	}
	b, p := s.buckets[at], c.Policies[j]
	window := p.Window.Milliseconds()
	full := c.Algorithm.(GCRA).atOnce(p) * window
	level := b.level
	switch {
	case b.window != window:
		level = int64(math.Min(math.Ceil(float64(level)/float64(b.window)*float64(window)), float64(full)))
	case !raw && (p.Limit == 0 || now-s.at >= window):
		level = min(level, full)
	}
	return rest(level, now-s.at, p.Limit)
}

// excess reports whether the bucket of policy j loses what it cannot hold later, and after how many ms.
func (s gcraState) excess(now int64, c *Charge, j int) (after int64, ok bool) {
	at, p := s.bucket(c, j), c.Policies[j]
	if at < 0 || p.Limit == 0 {
		return 0, false
	}
	window := p.Window.Milliseconds()
	after = window - max(0, now-s.at)
	return after, s.buckets[at].window == window && s.buckets[at].level > c.Algorithm.atOnce(p)*window && after > 0
}

// empty implements Algorithm. Buckets run empty only by a give-back, or else when no client
// looks at them any more: a counter whose units are all given back starts afresh.
func (GCRA) empty(h History) bool {
	var room gcraRoom
	for _, b := range readGCRA(h, &room).buckets {
		if b.level > 0 {
			return false
		}
	}
	return true
}

// count returns how many units bucket j holds, in part or as a whole.
func (s gcraState) count(now int64, c *Charge, j int) int64 {
	return ceilDiv(s.level(now, c, j, false), c.Policies[j].Window.Milliseconds())
}

// falls is that of a decision on bucket j; with n below 0, the time in which a unit leaks.
func (s gcraState) falls(now int64, c *Charge, j int, n int64) time.Duration {
	p := c.Policies[j]
	window := p.Window.Milliseconds()
	wait := drain(s.level(now, c, j, false)-n*window, p)
	if after, ok := s.excess(now, c, j); ok && wait >= after {
		wait = max(after, drain((c.Algorithm.atOnce(p)-n)*window, p)-window+after)
	}
	return millis(wait)
}

func (a GCRA) look(h History, now int64, c *Charge, ds []Decision) bool {
	var room gcraRoom
	s := readGCRA(h, &room)
	return look(now, c, ds, func(j int) int64 { return s.count(now, c, j) })
}

// spend implements Algorithm. Units leak evenly, so that all times are known.
func (GCRA) spend(h History, now int64, c *Charge, ds []Decision) History {
	var room gcraRoom
	s := readGCRA(h, &room)
	s = s.add(now, c, c.Cost, false, new(gcraRoom))
	for j := range c.Policies {
		d := &ds[j]
		d.Remaining -= c.Cost
		d.ResetAfter = s.falls(now, c, j, 0)
		d.EffectiveWindow = s.falls(now, c, j, d.Limit-d.Remaining-1)
	}
	return s.write(h)
}

func (GCRA) explain(h History, now int64, c *Charge, ds []Decision, repair bool) History {
	var room gcraRoom
	s := readGCRA(h, &room)
	if repair && s.at > now {
		s.at = now
		h = s.write(h)
	}
	explain(c, ds, func(j int, n int64) time.Duration { return s.falls(now, c, j, n) })
	return h
}

// settle implements Algorithm.
//
// Units that are given back are taken from the levels as they are stored. A bucket whose
// limit c does not tell gives back only the units that were spent last.
func (a GCRA) chargeMore(h History, now int64, c *Charge, units int64) History {
	var room gcraRoom
	s := readGCRA(h, &room)
	s = s.add(now, c, units, true, new(gcraRoom))
	return s.write(h)
}

func (a GCRA) giveBack(h History, now int64, c *Charge, at, units int64) History {
	var room gcraRoom
	s := readGCRA(h, &room)
	if len(s.buckets) == 0 || at > s.at {
		return h // nothing was spent then
	}
	for k := range s.buckets {
		b, back := &s.buckets[k], int64(0)
		if j := policyOf(c, b.window, k); j >= 0 {
			p := c.Policies[j]
			back = rest(min(units, a.atOnce(p))*b.window, now-at, p.Limit)
		} else if at == s.at {
			back = min(units, ceilDiv(b.level, b.window)) * b.window
		}
		b.level = max(0, b.level-back)
	}
	return s.write(h)
}

// until returns the time in ms until which kept buckets matter, or 0 without kept buckets.
func (a GCRA) until(h History) int64 {
	var room gcraRoom
	s, until := readGCRA(h, &room), int64(0)
	for k, t := range s.terms {
		until = max(until, s.at+a.keeps(s.buckets[k], t)-t.age)
	}
	return until
}

// keeps returns for how long a bucket is kept after it was an own one, in ms.
func (a GCRA) keeps(b gcraBucket, t gcraTerms) int64 {
	windows := int64(1)
	if t.limit > 0 && a.Burst > t.limit {
		windows = ceilDiv(a.Burst, t.limit)
	}
	return b.window * min(windows, longestDrain/b.window)
}

// add returns s with n units more in each bucket: those of c, brought to its policies, and those
// that are kept. With raw they need not fit. The buckets are in room if there is enough of it.
func (s gcraState) add(now int64, c *Charge, n int64, raw bool, room *gcraRoom) gcraState {
	fresh, kept := gcraState{at: now, own: len(c.Policies), buckets: room[:0]}, false
	for j, p := range c.Policies {
		window := p.Window.Milliseconds()
		fresh.buckets = append(fresh.buckets, gcraBucket{window: window, level: poured(s.level(now, c, j, raw), n, window)})
	}
	for k := range s.buckets {
		kept = kept || policyOf(c, s.buckets[k].window, k) < 0
	}
	if kept {
		return s.keep(fresh, c, n)
	}
	return fresh
}

// keep returns fresh, which has c's own buckets, with those that are kept beside them, with n units
// more.
func (s gcraState) keep(fresh gcraState, c *Charge, n int64) gcraState {
	a, elapsed, own := c.Algorithm.(GCRA), max(0, fresh.at-s.at), fresh.own
	for _, p := range c.Policies {
		fresh.terms = append(fresh.terms, gcraTerms{limit: p.Limit})
	}
	for k, b := range s.buckets {
		if policyOf(c, b.window, k) >= 0 {
			continue
		}
		var t gcraTerms
		switch {
		case s.terms != nil:
			t = s.terms[k]
		case a.Burst == 0:
			t.limit = b.level / b.window
		}
		if t.age += elapsed; t.age < a.keeps(b, t) {
			b.level = poured(rest(b.level, elapsed, t.limit), n, b.window)
			fresh.buckets, fresh.terms = append(fresh.buckets, b), append(fresh.terms, t)
		}
	}
	for len(fresh.buckets)-own > mostKept(own) {
		first, soonest := own, int64(math.MaxInt64)
		for k := own; k < len(fresh.buckets); k++ {
			if left := a.keeps(fresh.buckets[k], fresh.terms[k]) - fresh.terms[k].age; left < soonest {
				first, soonest = k, left
			}
		}
		fresh.buckets = slices.Delete(fresh.buckets, first, first+1)
		fresh.terms = slices.Delete(fresh.terms, first, first+1)
	}
	if len(fresh.buckets) == own {
		fresh.terms = nil
	}
	return fresh
}
