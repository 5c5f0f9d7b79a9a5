package window

import (
	"fmt"
	"math"
	"slices"
	"time"
)

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
// Slices are counted by absolute time, hold the time of their last unit and
// never overlap. When several limits share a key, slices that only the longer
// windows still see are merged to the longer windows' size; a denial may then last
// for one of the shortest window's slices more.
type Slices struct {
	// Number of slices in a window; 0 means DefaultSlices. Not together with Size.
	Count int64
	// Length of a slice, in whole milliseconds; 0 means Window/Count, rounded up.
	Size time.Duration
	// Whether the slice that is leaving counts in part.
	Weighted bool
}

// Check reports what is wrong with the options, in words for an operator.
func (a Slices) Check() error {
	switch {
	case a.Count < 0:
		return fmt.Errorf("count %d is not above 0", a.Count)
	case a.Size < 0, a.Size%time.Millisecond != 0:
		return fmt.Errorf("size %s is not a whole number of milliseconds above 0", a.Size)
	case a.Count > 0 && a.Size > 0:
		return fmt.Errorf("count %d and size %s exclude each other", a.Count, a.Size)
	}
	return nil
}

// Name implements Algorithm.
func (Slices) Name() string { return "slices" }

// Options implements Algorithm: weighted, size in ms, count.
func (a Slices) Options() []int64 {
	var weighted int64
	if a.Weighted {
		weighted = 1
	}
	return []int64{weighted, a.Size.Milliseconds(), a.count()}
}

// NewState implements Algorithm.
func (Slices) NewState() State { return new(slicesState) }

func (a Slices) count() int64 {
	if a.Count == 0 {
		return DefaultSlices
	}
	return a.Count
}

// size returns the length in ms of the slices that a window is cut into.
func (a Slices) size(window int64) int64 {
	if a.Size > 0 {
		return min(a.Size.Milliseconds(), window)
	}
	return 1 + (window-1)/a.count()
}

// slicesState holds the slices in order of time. They do not overlap: each one's
// last is before the next one's start.
type slicesState []slice

type slice struct {
	start, last int64 // ms: where the slice begins, and its latest unit
	count       int64
}

// clamp returns the slices as they look from now: units that lie in the future
// count as spent just now. It returns s itself if there are none.
func (s slicesState) clamp(now int64) slicesState {
	if len(s) == 0 || s[len(s)-1].last <= now {
		return s
	}
	clamped := make(slicesState, 0, len(s))
	for _, sl := range s {
		sl.start, sl.last = min(sl.start, now), min(sl.last, now)
		if n := len(clamped); n > 0 && clamped[n-1].last >= sl.start {
			clamped[n-1].last = sl.last
			clamped[n-1].count += sl.count
		} else {
			clamped = append(clamped, sl)
		}
	}
	return clamped
}

// weight returns how many units of slice i the policy's window still holds.
func (s slicesState) weight(i int, now, window int64, a Slices) int64 {
	sl, edge := s[i], now-window
	switch {
	case sl.last <= edge:
		return 0
	case !a.Weighted || edge < sl.start:
		return sl.count
	}
	end := s.end(i, a.size(window))
	return ceilDiv(sl.count*(end-1-edge), end-sl.start)
}

// end returns where slice i ends: a size after its start, unless it holds later
// units or the next one begins sooner.
func (s slicesState) end(i int, size int64) int64 {
	end := max(s[i].start+size, s[i].last+1)
	if i+1 < len(s) {
		end = min(end, s[i+1].start)
	}
	return end
}

func (s slicesState) total(now, window int64, a Slices) int64 {
	var total int64
	for i := range s {
		total += s.weight(i, now, window, a)
	}
	return total
}

// falls returns the time until the window holds at most target units. It returns
// the whole window if target is below 0.
func (s slicesState) falls(now, window, target int64, a Slices) time.Duration {
	var rest int64
	for i := range s {
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
	for i, sl := range s {
		rest -= s.weight(i, now, window, a)
		if sl.last <= now-window || rest > target {
			continue
		}
		edge := sl.last
		if a.Weighted {
			end := s.end(i, a.size(window))
			edge = min(edge, end-1-(target-rest)*(end-sl.start)/sl.count)
		}
		return millis(edge + window - now)
	}
	return 0
}

func (s *slicesState) Look(now int64, c *Charge, ds []Decision) bool {
	view, a := s.clamp(now), c.Algorithm.(Slices)
	fits := true
	for j, p := range c.Policies {
		left := p.Limit - view.total(now, p.Window.Milliseconds(), a)
		allowed := c.Cost == 0 || c.Cost <= left
		ds[j] = Decision{Allowed: allowed, Limit: p.Limit, Remaining: left, At: now}
		fits = fits && allowed
	}
	return fits
}

func (s *slicesState) Spend(now int64, c *Charge, ds []Decision) {
	a := c.Algorithm.(Slices)
	*s = s.clamp(now)
	s.add(now, c.Cost, c, a)
	for j, p := range c.Policies {
		d := &ds[j]
		d.Remaining -= c.Cost
		d.ResetAfter, d.EffectiveWindow = p.Window, p.Window
		if d.Remaining == 0 {
			d.EffectiveWindow = s.falls(now, p.Window.Milliseconds(), p.Limit-1, a)
		}
	}
}

func (s *slicesState) Explain(now int64, c *Charge, ds []Decision, repair bool) {
	view, a := s.clamp(now), c.Algorithm.(Slices)
	if repair {
		*s = view
	}
	for j, p := range c.Policies {
		d, window := &ds[j], p.Window.Milliseconds()
		count := d.Limit - d.Remaining
		switch {
		case d.Allowed:
		case c.Cost > d.Limit:
			d.RetryAfter = Never
		default:
			d.RetryAfter = view.falls(now, window, d.Limit-c.Cost, a)
		}
		d.EffectiveWindow = p.Window
		if count > 0 {
			d.ResetAfter = view.falls(now, window, 0, a)
			d.EffectiveWindow = view.falls(now, window, min(count, d.Limit)-1, a)
		}
		d.Remaining = max(0, d.Remaining)
	}
}

func (s *slicesState) Settle(now int64, c *Charge, at, delta int64) {
	*s = s.clamp(now)
	if delta > 0 {
		s.add(now, delta, c, c.Algorithm.(Slices))
		return
	}
	for i := range *s {
		if sl := &(*s)[i]; sl.start <= at && at <= sl.last {
			sl.count -= min(sl.count, -delta)
			if sl.count == 0 {
				*s = slices.Delete(*s, i, i+1)
			}
			return
		}
	}
}

// add books n units at now; then it drops the slices that no policy sees, and
// merges neighbours that nothing sees apart any more.
func (s *slicesState) add(now, n int64, c *Charge, a Slices) {
	finest := int64(math.MaxInt64)
	for _, p := range c.Policies {
		finest = min(finest, a.size(p.Window.Milliseconds()))
	}
	all, start := *s, now/finest*finest
	if newest := len(all) - 1; newest >= 0 && (all[newest].start >= start || all[newest].last == now) {
		all[newest].count += n
		all[newest].last = now
	} else {
		if newest >= 0 {
			start = max(start, all[newest].last+1)
		}
		all = append(all, slice{start: start, last: now, count: n})
	}
	kept := all[:0]
	for _, sl := range all {
		var size int64 // that of the finest policy that still sees the slice
		for _, p := range c.Policies {
			if window := p.Window.Milliseconds(); sl.last > now-window && (size == 0 || a.size(window) < size) {
				size = a.size(window)
			}
		}
		switch n := len(kept); {
		case size == 0:
		case n > 0 && kept[n-1].start/size == sl.start/size:
			kept[n-1].count += sl.count
			kept[n-1].last = sl.last
		default:
			kept = append(kept, sl)
		}
	}
	*s = kept
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
