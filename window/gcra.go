package window

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
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
// Units lose their time once they are in the bucket. Settle gives back only what
// cannot have leaked since they were spent, and spends no more than the bucket
// still holds.
type GCRA struct {
	// Units that may pass at once; 0 means the limit.
	Burst int64
	// Whether a store in Redis leaves the decision to the command CL.THROTTLE.
	Native Native
}

// Native is about CL.THROTTLE, the command of redis-cell and of Dragonfly for this
// algorithm. It decides on requests that are charged on one limit and no more, in
// a window of whole seconds of which a unit is a whole number of milliseconds:
// servers cut off the rest.
//
// It counts apart from the script and answers in whole seconds, rounded up, or
// one more. It keeps no more than the time at which the bucket is empty, so that
// a raised limit has to wait for what was spent before it. Decision.At is 0, and
// Settle an error.
type Native int

// Whether CL.THROTTLE is used.
const (
	NativeOff  Native = iota // never
	NativeAuto               // if the server has it
	NativeOn                 // yes; without it the store is unavailable
)

func isNative(c *Charge) bool {
	a, ok := c.Algorithm.(GCRA)
	return ok && a.Native != NativeOff
}

// Check reports what is wrong with the options, in words for an operator.
func (a GCRA) Check() error {
	switch {
	case a.Burst < 0:
		return fmt.Errorf("burst %d is not above 0", a.Burst)
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

// CheckPolicy reports why the algorithm cannot keep the policy, which is valid by
// itself, in words for an operator.
func (a GCRA) CheckPolicy(p Policy) error {
	burst, window := a.AtOnce(p), p.Window.Milliseconds()
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

// Options implements Algorithm: burst (0: the limit).
func (a GCRA) Options() []int64 { return []int64{a.Burst} }

// AtOnce returns how many units may pass at once.
func (a GCRA) AtOnce(p Policy) int64 {
	if a.Burst == 0 || p.Limit == 0 {
		return p.Limit
	}
	return a.Burst
}

// gcraState holds a bucket for each policy. A level is measured in units × ms of
// its window, so that all steps are whole numbers: a unit adds the window, and a
// millisecond takes the limit away. Its History is the time, and of each bucket the
// window and the level.
type gcraState struct {
	at      int64 // ms: when the levels were as they are here
	buckets []gcraBucket
}

type gcraBucket struct{ window, level int64 }

// gcraRoom is for the buckets of the usual request, which then needs no memory.
type gcraRoom [4]gcraBucket

func readGCRA(h History, room *gcraRoom) gcraState {
	s := gcraState{buckets: room[:0]}
	if len(h) == 0 {
		return s
	}
	all := numbers(h)
	for s.at = all.next(); len(all) > 0; {
		s.buckets = append(s.buckets, gcraBucket{window: all.next(), level: all.next()})
	}
	return s
}

func (s gcraState) write(h History) History {
	h = h[:0].appendNumbers(s.at)
	for _, b := range s.buckets {
		h = h.appendNumbers(b.window, b.level)
	}
	return h
}

// rest returns what is left of a level after a time.
func rest(level, elapsed int64, p Policy) int64 {
	high, gone := bits.Mul64(uint64(max(0, elapsed)), uint64(p.Limit))
	if high > 0 || gone > uint64(level) {
		return 0
	}
	return level - int64(gone)
}

// drain returns the time until a level is gone; the whole window if it never is.
func drain(level int64, p Policy) time.Duration {
	switch {
	case level == 0:
		return 0
	case p.Limit == 0:
		return p.Window
	}
	return millis(ceilDiv(level, p.Limit))
}

// bucket returns where the bucket of policy j is, or -1: limits may have come, gone or
// changed places. It is that of the same window; without one, the one in its place,
// unless that is another policy's.
func (s gcraState) bucket(c *Charge, j int) int {
	is := func(p Policy, b gcraBucket) bool { return p.Window.Milliseconds() == b.window }
	if j < len(s.buckets) && is(c.Policies[j], s.buckets[j]) {
		return j
	}
	for k, b := range s.buckets {
		if is(c.Policies[j], b) {
			return k
		}
	}
	if j >= len(s.buckets) {
		return -1
	}
	for _, p := range c.Policies {
		if is(p, s.buckets[j]) {
			return -1
		}
	}
	return j
}

// level returns how full the bucket of policy j is. What was measured in another window
// is converted, and cut to what the bucket can hold before it leaks: a denial holds
// as long as it says, whatever the limit was before.
func (s gcraState) level(now int64, c *Charge, j int) int64 {
	at := s.bucket(c, j)
	if at < 0 {
		return 0
	}
	b, p := s.buckets[at], c.Policies[j]
	window := p.Window.Milliseconds()
	full := c.Algorithm.(GCRA).AtOnce(p) * window
	level := b.level
	if b.window != window {
		level = int64(math.Min(math.Ceil(float64(level)/float64(b.window)*float64(window)), float64(full)))
	}
	return rest(min(level, full), now-s.at, p)
}

// Empty implements Algorithm.
func (GCRA) Empty(h History) bool {
	var room gcraRoom
	for _, b := range readGCRA(h, &room).buckets {
		if b.level > 0 {
			return false
		}
	}
	return true
}

// Look implements Algorithm.
func (a GCRA) Look(h History, now int64, c *Charge, ds []Decision) bool {
	var room gcraRoom
	s, fits := readGCRA(h, &room), true
	for j, p := range c.Policies {
		burst, window := a.AtOnce(p), p.Window.Milliseconds()
		left := (burst*window - s.level(now, c, j)) / window
		allowed := c.Cost == 0 || c.Cost <= left
		ds[j] = Decision{Allowed: allowed, Limit: burst, Remaining: left, At: now}
		fits = fits && allowed
	}
	return fits
}

// Spend implements Algorithm.
func (GCRA) Spend(h History, now int64, c *Charge, ds []Decision) History {
	var room gcraRoom
	s := readGCRA(h, &room)
	s = s.add(now, c, c.Cost)
	for j := range c.Policies {
		ds[j].Remaining -= c.Cost
		s.times(now, c, j, &ds[j])
	}
	return s.write(h)
}

// Explain implements Algorithm.
func (GCRA) Explain(h History, now int64, c *Charge, ds []Decision, repair bool) History {
	var room gcraRoom
	s := readGCRA(h, &room)
	if repair && s.at > now {
		s.at = now
		h = s.write(h)
	}
	for j, p := range c.Policies {
		d, window := &ds[j], p.Window.Milliseconds()
		switch {
		case d.Allowed:
		case c.Cost > d.Limit:
			d.RetryAfter = Never
		default:
			d.RetryAfter = drain(s.level(now, c, j)+(c.Cost-d.Limit)*window, p)
		}
		s.times(now, c, j, d)
	}
	return h
}

// times sets the times until bucket j is empty, and until it has room for one
// unit more than remains.
func (s gcraState) times(now int64, c *Charge, j int, d *Decision) {
	p, level := c.Policies[j], s.level(now, c, j)
	d.ResetAfter = drain(level, p)
	d.EffectiveWindow = drain(level+(d.Remaining+1-d.Limit)*p.Window.Milliseconds(), p)
}

// Settle implements Algorithm.
func (a GCRA) Settle(h History, now int64, c *Charge, at, delta int64) History {
	var room gcraRoom
	s := readGCRA(h, &room)
	if delta > 0 {
		return s.add(now, c, delta).write(h)
	}
	if len(s.buckets) == 0 || at > s.at {
		return h // nothing was spent then
	}
	s = s.refresh(now, c)
	for j, p := range c.Policies {
		b := &s.buckets[j]
		units := min(-delta, a.AtOnce(p))
		b.level = max(0, b.level-rest(units*b.window, now-at, p))
	}
	return s.write(h)
}

// add pours n units into each bucket, as far as they fit.
func (s gcraState) add(now int64, c *Charge, n int64) gcraState {
	s = s.refresh(now, c)
	for j, p := range c.Policies {
		b, burst := &s.buckets[j], c.Algorithm.(GCRA).AtOnce(p)
		b.level = min(b.level+min(n, burst)*b.window, burst*b.window)
	}
	return s
}

// refresh brings the buckets to now, and to the policies of c.
func (s gcraState) refresh(now int64, c *Charge) gcraState {
	var room gcraRoom
	fresh := room[:0]
	for j, p := range c.Policies {
		fresh = append(fresh, gcraBucket{window: p.Window.Milliseconds(), level: s.level(now, c, j)})
	}
	s.at, s.buckets = now, append(s.buckets[:0], fresh...)
	return s
}
