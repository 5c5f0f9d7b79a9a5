package leases

import "time"

// Clocks is a time as the Clocks of this process tell it, each since a moment of its own. The
// steady one may not count while the machine is suspended; the one on the wall may be set.
type Clocks struct{ Steady, Wall time.Duration }

// since returns the time that has passed since t, by the clock that has counted more.
func (c Clocks) since(t Clocks) time.Duration { return max(c.Steady-t.Steady, c.Wall-t.Wall) }

// sinceAtLeast returns the time that has passed since t, by the clock that has counted less.
func (c Clocks) sinceAtLeast(t Clocks) time.Duration { return min(c.Steady-t.Steady, c.Wall-t.Wall) }

// NewClocks returns what tells the time: own, if that is not nil.
func NewClocks(own func() time.Duration) func() Clocks {
	if own != nil {
		return func() Clocks { return Clocks{own(), own()} }
	}
	start := time.Now()
	return func() Clocks {
		now := time.Now()
		return Clocks{now.Sub(start), time.Duration(now.UnixNano())}
	}
}
