package redis

import "time"

// clocks is a time as the clocks of this process tell it, each since a moment of its own. The
// steady one may not count while the machine is suspended; the one on the wall may be set.
type clocks struct{ steady, wall time.Duration }

// since returns the time that has passed since t, by the clock that has counted more.
func (c clocks) since(t clocks) time.Duration { return max(c.steady-t.steady, c.wall-t.wall) }

// sinceAtLeast returns the time that has passed since t, by the clock that has counted less.
func (c clocks) sinceAtLeast(t clocks) time.Duration { return min(c.steady-t.steady, c.wall-t.wall) }

// newClocks returns what tells the time for a store: its own clock if tests set that.
func newClocks(s *Store) func() clocks {
	if s.now != nil {
		return func() clocks { return clocks{s.clock(), s.clock()} }
	}
	start := time.Now()
	return func() clocks {
		now := time.Now()
		return clocks{now.Sub(start), time.Duration(now.UnixNano())}
	}
}
