package window

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"
)

// maxSliceFields bounds how many slices a decision on one policy reads: a minute of 100 ms
// each. A slice takes more than a microsecond in Redis, which runs nothing else at the same time.
const maxSliceFields = 600

// DefaultSlices is how many slices a window is cut into unless told otherwise.
const DefaultSlices = 60

// Slices counts units per slice of the window instead of one by one: memory is
// constant, whatever the traffic. In Redis it is a hash with a field per slice.
//
// Strict, the default, counts the slice that is leaving the window as a whole
// until its last unit has left: never over the limit, and a charge is denied for
// at most one slice longer than it had to be. Weighted assumes that the units of
// the leaving slice were spread evenly, and counts the share that is still in
// the window: closer on average, but up to 2×Limit-1 units may pass in one
// window when all of a slice came at its end. With one slice it is the
// two-counter window known from proxies.
//
// Adaptive slices, of Min to Max, are strict. They are as long as Max while more
// than half of the limit is free, and half as long each time that the free share
// halves: fine where a denial may be near, and few where it is not.
//
// Slices are counted by absolute time, hold the time of their last unit and
// never overlap. Neighbours that are no longer than one slice together are merged:
// when traffic falls and slices are adaptive, or when several limits share a key
// and only the longer windows still see them; a denial may then last for one of
// the shortest window's slices more.
type Slices struct {
	usual

	// Number of slices in a window; 0 means DefaultSlices. Not together with Size.
	Count int64
	// Length of a slice, in whole milliseconds; 0 means Window/Count, rounded up.
	Size time.Duration
	// Shortest and longest slice, in whole milliseconds, if slices are adaptive.
	// Not together with the other options.
	Min, Max time.Duration
	// Whether the slice that is leaving counts in part.
	Weighted bool
}

// check reports what is wrong with the options, in words for an operator.
func (a Slices) check() error {
	switch {
	case a.Count < 0:
		return fmt.Errorf("count %d: must be greater than 0", a.Count)
	case a.Size < 0, a.Size%time.Millisecond != 0:
		return fmt.Errorf("size %s is not a whole number of milliseconds above 0", a.Size)
	case a.Count > 0 && a.Size > 0:
		return fmt.Errorf("count %d and size %s cannot be combined; take out one", a.Count, a.Size)
	case a.Min == 0 && a.Max == 0:
		return nil
	}
	return a.checkAdaptive()
}

func (a Slices) checkAdaptive() error {
	var problem string
	switch {
	case a.Min <= 0, a.Min%time.Millisecond != 0:
		problem = fmt.Sprintf(": min %s is not a whole number of milliseconds above 0", a.Min)
	case a.Max <= 0, a.Max%time.Millisecond != 0:
		problem = fmt.Sprintf(": max %s is not a whole number of milliseconds above 0", a.Max)
	case a.Min > a.Max:
		problem = fmt.Sprintf(": min %s is above max %s; write the shorter one first", a.Min, a.Max)
	case a.Count > 0:
		problem = fmt.Sprintf(" and count %d cannot be combined; take out one", a.Count)
	case a.Size > 0:
		problem = fmt.Sprintf(" and size %s cannot be combined; take out one", a.Size)
	case a.Weighted:
		problem = " and weighted cannot be combined; take out weighted, for adaptive slices are strict"
	default:
		return nil
	}
	return fmt.Errorf("adaptive %s %s%s", a.Min, a.Max, problem)
}

// checkPolicy reports a policy that would need more slices than a decision may read. Each
// slice holds a unit at least, so that a small limit needs few, however short they are.
func (a Slices) checkPolicy(p Policy) error {
	slices := min(p.Limit, a.most(p.Window))
	if slices <= maxSliceFields {
		return nil
	}
	var options, cure string
	switch {
	case a.Max > 0:
		options, cure = fmt.Sprintf("adaptive %s %s", a.Min, a.Max), "write a longer min"
	case a.Size > 0:
		options, cure = fmt.Sprintf("size %s", a.Size), "use longer slices"
	default:
		options, cure = fmt.Sprintf("count %d", a.count()), "use fewer slices"
	}
	return fmt.Errorf("%s would make a decision on the limit %d and the window %s read %d slices, where %d is the most; %s, layers, or algorithm log",
		options, p.Limit, p.Window, slices, maxSliceFields, cure)
}

// Name implements Algorithm.
func (Slices) Name() string { return "slices" }

// options implements Algorithm: weighted, size in ms, count, min and max in ms.
func (a Slices) options() []int64 {
	var weighted int64
	if a.Weighted {
		weighted = 1
	}
	return []int64{weighted, a.Size.Milliseconds(), a.count(), a.Min.Milliseconds(), a.Max.Milliseconds()}
}

// most returns how many slices a window is counted in at most.
func (a Slices) most(length time.Duration) int64 {
	switch {
	case a.Max > 0:
		return int64(length / a.Min)
	case a.Size > 0:
		return int64(length / a.Size)
	}
	return min(a.count(), length.Milliseconds())
}

func (a Slices) count() int64 {
	if a.Count == 0 {
		return DefaultSlices
	}
	return a.Count
}

// size returns the length in ms of the slices that a window is cut into, the
// longest if they are adaptive.
func (a Slices) size(window int64) int64 {
	if a.Max > 0 {
		return min(a.Max.Milliseconds(), window)
	}
	if a.Size > 0 {
		return min(a.Size.Milliseconds(), window)
	}
	return 1 + (window-1)/a.count()
}

// slicesState is the History: the slices in order of time, of which each is its three
// numbers. They do not overlap: each one's last is before the next one's start.
type slicesState History

type slice struct {
	start, last int64 // ms: where the slice begins, and its latest unit
	count       int64
}

const sliceSize = 3 * 8 // bytes

func (s slicesState) len() int { return len(s) / sliceSize }

func (s slicesState) at(i int) slice {
	b := s[i*sliceSize:][:sliceSize]
	return slice{
		start: int64(binary.LittleEndian.Uint64(b)),
		last:  int64(binary.LittleEndian.Uint64(b[8:])),
		count: int64(binary.LittleEndian.Uint64(b[16:])),
	}
}

func (s slicesState) set(i int, sl slice) {
	b := s[i*sliceSize:][:sliceSize]
	binary.LittleEndian.PutUint64(b, uint64(sl.start))
	binary.LittleEndian.PutUint64(b[8:], uint64(sl.last))
	binary.LittleEndian.PutUint64(b[16:], uint64(sl.count))
}

func (s slicesState) push(sl slice) slicesState {
	return slicesState(History(s).appendNumbers(sl.start, sl.last, sl.count))
}

// newest returns the last slice, or one without units.
func (s slicesState) newest() slice {
	if len(s) == 0 {
		return slice{}
	}
	return s.at(s.len() - 1)
}

// stepped reports whether the clock has stepped back since the last unit.
func (s slicesState) stepped(now int64) bool { return s.newest().last > now }

// clamp returns the slices as they look from now: units that lie in the future count as
// spent just now. It returns s itself if no unit lies in the future.
func (s slicesState) clamp(now int64) slicesState {
	if !s.stepped(now) {
		return s
	}
	clamped := make(slicesState, 0, len(s))
	for i := range s.len() {
		sl := s.at(i)
		sl.start, sl.last = min(sl.start, now), min(sl.last, now)
		if before := clamped.newest(); before.count > 0 && before.last >= sl.start {
			clamped.set(clamped.len()-1, slice{before.start, sl.last, before.count + sl.count})
		} else {
			clamped = clamped.push(sl)
		}
	}
	return clamped
}

// weight returns how many units of slice i the policy's window still holds.
func (s slicesState) weight(i int, now, window int64, a Slices) int64 {
	sl, edge := s.at(i), now-window
	switch {
	case sl.last <= edge:
		return 0
	case !a.Weighted || edge < sl.start:
		return sl.count
	}
	end, ok := s.spread(i, a.size(window))
	if !ok {
		return sl.count
	}
	quotient, rest := product(sl.count, end-1-edge, end-sl.start)
	return quotient + min(1, rest)
}

// spread returns where slice i ends. It reports whether the units of the slice may be
// taken to be spread evenly: not if the slice is longer than those of the window, as one
// from a charge under a longer window can be.
func (s slicesState) spread(i int, size int64) (end int64, ok bool) {
	end = s.end(i, size)
	return end, end-s.at(i).start <= size
}

// product returns a × b / c, and what is left over. The product may be beyond int64,
// for a slice can hold far more than the limit that there is now; one of a and b is at
// most c, and none is negative.
func product(a, b, c int64) (quotient, rest int64) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(high, low, uint64(c))
	return int64(q), int64(r)
}

// end returns where slice i ends: a size after its start, unless it holds later
// units or the next one begins sooner.
func (s slicesState) end(i int, size int64) int64 {
	sl := s.at(i)
	end := max(sl.start+size, sl.last+1)
	if i+1 < s.len() {
		end = min(end, s.at(i+1).start)
	}
	return end
}

func (s slicesState) total(now, window int64, a Slices) int64 {
	var total int64
	for i := range s.len() {
		total += s.weight(i, now, window, a)
	}
	return total
}

// falls returns the time until the window holds at most target units. It returns
// the whole window if target is below 0.
func (s slicesState) falls(now, window, target int64, a Slices) time.Duration {
	var rest int64
	for i := range s.len() {
		rest += s.weight(i, now, window, a)
	}
	if target < 0 {
		return millis(window)
	}
	if rest <= target {
		return 0
	}
	// Slices leave one after the other: while one counts in part, those before it
	// are gone and those after it are whole.
	for i := range s.len() {
		sl := s.at(i)
		rest -= s.weight(i, now, window, a)
		if sl.last <= now-window || rest > target {
			continue
		}
		edge := sl.last
		if a.Weighted {
			if end, ok := s.spread(i, a.size(window)); ok {
				quotient, _ := product(target-rest, end-sl.start, sl.count)
				edge = min(edge, end-1-quotient)
			}
		}
		return millis(edge + window - now)
	}
	return 0
}

// length returns how long the slices of the policy have to be once n more units
// are spent.
func (s slicesState) length(now, n int64, p Policy, a Slices) int64 {
	window := p.Window.Milliseconds()
	length := a.size(window)
	if a.Max > 0 {
		free := max(0, p.Limit-s.total(now, window, a)-n)
		for shortest := a.Min.Milliseconds(); length > shortest && 2*free <= p.Limit; free *= 2 {
			length = max(shortest, length/2)
		}
	}
	return length
}

func (Slices) empty(h History) bool { return len(h) == 0 }

func (Slices) newest(h History) (int64, bool) { return slicesState(h).newest().last, len(h) > 0 }

func (a Slices) look(h History, now int64, c *Charge, ds []Decision) bool {
	s := slicesState(h).clamp(now)
	return look(now, c, ds, func(j int) int64 { return s.total(now, c.Policies[j].Window.Milliseconds(), a) })
}

func (a Slices) spend(h History, now int64, c *Charge, ds []Decision) History {
	s := slicesState(h).clamp(now).add(now, c.Cost, c, a)
	spent(c, ds, func(j int, n int64) time.Duration { return s.falls(now, c.Policies[j].Window.Milliseconds(), n, a) })
	return History(s)
}

func (a Slices) explain(h History, now int64, c *Charge, ds []Decision, repair bool) History {
	s := slicesState(h).clamp(now)
	explain(c, ds, func(j int, n int64) time.Duration { return s.falls(now, c.Policies[j].Window.Milliseconds(), n, a) })
	if repair {
		return History(s)
	}
	return h
}

func (a Slices) chargeMore(h History, now int64, c *Charge, units int64) History {
	return History(slicesState(h).clamp(now).add(now, units, c, a))
}

func (Slices) giveBack(h History, now int64, _ *Charge, at, units int64) History {
	s := slicesState(h).clamp(now)
	for i := range s.len() {
		sl := s.at(i)
		if sl.start > at || at > sl.last {
			continue
		}
		sl.count -= min(sl.count, units)
		if sl.count == 0 {
			return History(slices.Delete(s, i*sliceSize, (i+1)*sliceSize))
		}
		s.set(i, sl)
		break
	}
	return History(s)
}

// add books n units at now. It then drops the slices that are older than the charge looks
// back, and merges neighbours that are no longer than one slice together.
func (s slicesState) add(now, n int64, c *Charge, a Slices) slicesState {
	finest := int64(math.MaxInt64)
	lengths := make([]int64, 0, 8)
	for _, p := range c.Policies {
		length := s.length(now, n, p, a)
		lengths = append(lengths, length)
		finest = min(finest, length)
	}
	keep, start := c.Longest(), now/finest*finest
	if newest := s.newest(); newest.count > 0 && (newest.start >= start || newest.last == now) {
		s.set(s.len()-1, slice{newest.start, now, newest.count + n})
	} else {
		if newest.count > 0 {
			start = max(start, newest.last+1)
		}
		s = s.push(slice{start, now, n})
	}
	kept, before := 0, slice{}
	for i := range s.len() {
		sl := s.at(i)
		var length int64 // that of the finest policy that still sees the slice
		for j, p := range c.Policies {
			if sl.last > now-p.Window.Milliseconds() && (length == 0 || lengths[j] < length) {
				length = lengths[j]
			}
		}
		if length == 0 && sl.last > now-keep {
			length = a.size(keep) // of no policy of this charge
		}
		switch {
		case length == 0:
			continue
		case kept > 0 && sl.last-before.start < length:
			kept--
			sl = slice{before.start, sl.last, before.count + sl.count}
			s.set(kept, sl)
		case kept < i:
			s.set(kept, sl)
		}
		before = sl
		kept++
	}
	return s[:kept*sliceSize]
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
