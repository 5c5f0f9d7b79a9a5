package window

import (
	"sort"
	"time"
)

// Zset is the exact sliding-window log: every unit is kept with its millisecond
// until it leaves the longest window. In Redis it is a sorted set with one
// member per unit, which costs memory in proportion to the limit.
//
// The promise: in every interval (t-Window, t] at most Limit units pass, and a
// charge is denied only if it would break that.
type Zset struct{}

// Name implements Algorithm.
func (Zset) Name() string { return "zset" }

// Options implements Algorithm.
func (Zset) Options() []int64 { return nil }

// NewState implements Algorithm.
func (Zset) NewState() State {
	// Many keys never see a second entry: the first one is beside the state.
	s := new(struct {
		zsetState
		first [1]zsetEntry
	})
	s.entries = s.first[:0]
	return &s.zsetState
}

// zsetState is the log in memory. Units of one millisecond share an entry, and
// entries carry running totals, so that any number of units in any window is
// two binary searches away.
type zsetState struct {
	entries []zsetEntry // by time, oldest first; entries[:head] have left
	head    int
}

type zsetEntry struct {
	at   int64 // ms
	upTo int64 // units up to and with this entry, from the first of the slice on
}

// after returns the index of the first entry later than t. Most often that is the
// last one, or near the oldest: it is looked for from there, in steps that double.
func (s *zsetState) after(t int64) int {
	low, high := s.head, len(s.entries)
	if low == high || s.entries[high-1].at <= t {
		return high
	}
	for step := 1; low+step < high; step *= 2 {
		if s.entries[low+step-1].at > t {
			high = low + step - 1
			break
		}
		low += step
	}
	return low + sort.Search(high-low, func(i int) bool { return s.entries[low+i].at > t })
}

// before returns the running total before entry i.
func (s *zsetState) before(i int) int64 {
	if i == 0 {
		return 0
	}
	return s.entries[i-1].upTo
}

func (s *zsetState) total() int64 { return s.before(len(s.entries)) }

func (s *zsetState) count(now int64, p Policy) int64 {
	return s.total() - s.before(s.after(now-p.Window.Milliseconds()))
}

// leaves returns the time until the k-th oldest unit of the policy's window
// leaves it; k is 1 or more. It returns the whole window if there is no such unit.
func (s *zsetState) leaves(now int64, p Policy, k int64) time.Duration {
	unit := s.before(s.after(now-p.Window.Milliseconds())) + k
	i := s.head + sort.Search(len(s.entries)-s.head, func(i int) bool { return s.entries[s.head+i].upTo >= unit })
	if i == len(s.entries) {
		return p.Window
	}
	return p.Window - millis(now-min(s.entries[i].at, now))
}

func (s *zsetState) Look(now int64, c *Charge, ds []Decision) bool {
	fits := true
	for j, p := range c.Policies {
		left := p.Limit - s.count(now, p)
		allowed := c.Cost == 0 || c.Cost <= left
		ds[j] = Decision{Allowed: allowed, Limit: p.Limit, Remaining: left, At: now}
		fits = fits && allowed
	}
	return fits
}

func (s *zsetState) Spend(now int64, c *Charge, ds []Decision) {
	s.add(now, c.Cost)
	s.prune(now - longest(c))
	for j, p := range c.Policies {
		d := &ds[j]
		d.Remaining -= c.Cost
		d.ResetAfter, d.EffectiveWindow = p.Window, p.Window
		if d.Remaining == 0 {
			d.EffectiveWindow = s.leaves(now, p, 1)
		}
	}
}

func (s *zsetState) Explain(now int64, c *Charge, ds []Decision, repair bool) {
	newest := now
	if n := len(s.entries); n > s.head {
		newest = s.entries[n-1].at
	}
	if newest > now {
		if repair {
			s.pullBack(now)
		}
		newest = now
	}
	for j, p := range c.Policies {
		d := &ds[j]
		count := d.Limit - d.Remaining
		switch {
		case d.Allowed:
		case c.Cost > d.Limit:
			d.RetryAfter = Never
		default:
			d.RetryAfter = s.leaves(now, p, c.Cost-d.Remaining)
		}
		if count > 0 {
			d.ResetAfter = p.Window - millis(now-newest)
		}
		d.EffectiveWindow = s.leaves(now, p, max(1, 1-d.Remaining))
		d.Remaining = max(0, d.Remaining)
	}
}

func (s *zsetState) Settle(now int64, c *Charge, at, delta int64) {
	if delta > 0 {
		s.add(now, delta)
		s.prune(now - longest(c))
		return
	}
	i := s.after(at) - 1
	if i < s.head || s.entries[i].at != at {
		return
	}
	units := s.entries[i].upTo - s.before(i)
	back := min(units, -delta)
	for k := i; k < len(s.entries); k++ {
		s.entries[k].upTo -= back
	}
	if back == units {
		s.entries = append(s.entries[:i], s.entries[i+1:]...)
	}
}

// add books n units at now, before any that lie in the future.
func (s *zsetState) add(now, n int64) {
	i := s.after(now)
	if i == s.head || s.entries[i-1].at != now {
		upTo := s.before(i)
		s.entries = append(s.entries, zsetEntry{})
		copy(s.entries[i+1:], s.entries[i:])
		s.entries[i] = zsetEntry{at: now, upTo: upTo}
		i++
	}
	for k := i - 1; k < len(s.entries); k++ {
		s.entries[k].upTo += n
	}
}

// prune forgets what was spent at or before t. Room is given back once it is
// mostly empty, so that the cost stays constant over many calls.
func (s *zsetState) prune(t int64) {
	i := s.after(t)
	s.head = i
	if live := len(s.entries) - i; i >= live && i > 0 {
		gone := s.before(i)
		for k := range s.entries[i:] {
			s.entries[i+k].upTo -= gone
		}
		if cap(s.entries) > 4*live+8 {
			s.entries = append(make([]zsetEntry, 0, live+live/2), s.entries[i:]...)
		} else {
			s.entries = s.entries[:copy(s.entries, s.entries[i:])]
		}
		s.head = 0
	}
}

// pullBack moves everything that lies in the future to now.
func (s *zsetState) pullBack(now int64) {
	i, total := s.after(now), s.total()
	if i > s.head && s.entries[i-1].at == now {
		i--
	}
	s.entries = append(s.entries[:i], zsetEntry{at: now, upTo: total})
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
