package window

import (
	"fmt"
	"math"
	"time"
)

// GCRA lets Burst units pass at once, and then one every Window/Limit. It is the
// generic cell rate algorithm (ITU-T I.371), written as the leaky bucket that it
// equals: a bucket that holds Burst units and leaks Limit in every Window. State
// is two numbers per limit, whatever the traffic.
//
// In one window, Burst+Limit units may pass, less one if the bucket had to be
// full before: 2×Limit-1 by default.
//
// Levels are kept in units × milliseconds of the window, so that every step is a
// whole number: a unit adds Window, and a millisecond leaks Limit.
type GCRA struct {
	// Units that may pass at once; 0 means the policy's limit.
	Burst int64
	// Let the server decide with CL.THROTTLE, if it has that command. Its times
	// are whole seconds.
	Native bool
}

// Check reports what is wrong with the options, in words for an operator.
func (a GCRA) Check() error {
	if a.Burst < 0 {
		return fmt.Errorf("burst %d is not above 0", a.Burst)
	}
	return nil
}

// CheckPolicy reports a policy that does not go with the options.
func (a GCRA) CheckPolicy(p Policy) error {
	if a.Burst > MaxProduct/p.Window.Milliseconds() {
		return fmt.Errorf("burst %d × window %s is too large: burst × milliseconds must not exceed 2^53", a.Burst, p.Window)
	}
	return nil
}

// Name implements Algorithm.
func (GCRA) Name() string { return "gcra" }

// Options implements Algorithm: burst, 0 for the limit.
func (a GCRA) Options() []int64 { return []int64{a.Burst} }

// NewState implements Algorithm.
func (GCRA) NewState() State { return new(gcraState) }

// AtOnce implements AtOncer.
func (a GCRA) AtOnce(p Policy) int64 {
	if a.Burst == 0 || p.Limit == 0 {
		return p.Limit
	}
	return a.Burst
}

// gcraState is a bucket per policy, as of a time.
type gcraState struct {
	at      int64 // ms
	buckets []gcraBucket
}

type gcraBucket struct {
	window int64 // ms, of the policy that the level was measured with
	level  int64 // units × ms
}

// level returns how full policy j's bucket is now. What was measured with another
// window is converted, and a bucket is never fuller than it can be: a changed
// policy acts on the units that are there.
func (s *gcraState) level(now int64, j int, p Policy, a GCRA) int64 {
	if j >= len(s.buckets) || p.Limit == 0 {
		return 0
	}
	b, window := s.buckets[j], p.Window.Milliseconds()
	level := b.level
	if b.window != window {
		perUnit := float64(level) / float64(b.window)
		level = int64(min(math.Ceil(perUnit*float64(window)), float64(MaxProduct)))
	}
	level = min(level, a.AtOnce(p)*window)
	elapsed := max(0, now-s.at)
	if elapsed > level/p.Limit {
		return 0
	}
	return level - elapsed*p.Limit
}

// leak returns the time in which a policy's bucket loses amount; the whole window
// if it never does.
func leak(amount int64, p Policy) time.Duration {
	if p.Limit == 0 {
		return p.Window
	}
	return millis(ceilDiv(max(0, amount), p.Limit))
}

func (s *gcraState) Look(now int64, c *Charge, ds []Decision) bool {
	a := c.Algorithm.(GCRA)
	fits := true
	for j, p := range c.Policies {
		burst, window := a.AtOnce(p), p.Window.Milliseconds()
		left := (burst*window - s.level(now, j, p, a)) / window
		allowed := c.Cost == 0 || c.Cost <= left
		ds[j] = Decision{Allowed: allowed, Limit: burst, Remaining: left, At: now}
		fits = fits && allowed
	}
	return fits
}

func (s *gcraState) Spend(now int64, c *Charge, ds []Decision) {
	s.add(now, c, c.Cost)
	for j, p := range c.Policies {
		ds[j].Remaining -= c.Cost
		s.times(now, j, p, c.Algorithm.(GCRA), &ds[j])
	}
}

func (s *gcraState) Explain(now int64, c *Charge, ds []Decision, repair bool) {
	a := c.Algorithm.(GCRA)
	if repair && s.at > now {
		s.at = now
	}
	for j, p := range c.Policies {
		d, window := &ds[j], p.Window.Milliseconds()
		switch {
		case d.Allowed:
		case c.Cost > d.Limit:
			d.RetryAfter = Never
		default:
			d.RetryAfter = leak(s.level(now, j, p, a)+(c.Cost-d.Limit)*window, p)
		}
		s.times(now, j, p, a, d)
	}
}

// times sets how long it takes until the bucket is empty, and until it has room
// for one unit more than remains.
func (s *gcraState) times(now int64, j int, p Policy, a GCRA, d *Decision) {
	level := s.level(now, j, p, a)
	d.ResetAfter = leak(level, p)
	d.EffectiveWindow = leak(level+(d.Remaining+1-d.Limit)*p.Window.Milliseconds(), p)
}

// Settle gives back what of the units cannot have leaked yet.
func (s *gcraState) Settle(now int64, c *Charge, at, delta int64) {
	if delta > 0 {
		s.add(now, c, delta)
		return
	}
	s.refresh(now, c)
	for j, p := range c.Policies {
		if j < len(s.buckets) {
			back := min(-delta, a53/p.Window.Milliseconds())*p.Window.Milliseconds() - min(max(0, now-at), a53/max(1, p.Limit))*p.Limit
			s.buckets[j].level -= min(max(0, back), s.buckets[j].level)
		}
	}
}

const a53 = MaxProduct

// add books n units at now.
func (s *gcraState) add(now int64, c *Charge, n int64) {
	s.refresh(now, c)
	for j, p := range c.Policies {
		full := c.Algorithm.(GCRA).AtOnce(p) * p.Window.Milliseconds()
		s.buckets[j].level = min(full, s.buckets[j].level+min(n, full/p.Window.Milliseconds())*p.Window.Milliseconds())
	}
}

// refresh brings the buckets to now and to the charge's policies.
func (s *gcraState) refresh(now int64, c *Charge) {
	buckets := make([]gcraBucket, len(c.Policies))
	for j, p := range c.Policies {
		buckets[j] = gcraBucket{p.Window.Milliseconds(), s.level(now, j, p, c.Algorithm.(GCRA))}
	}
	s.at, s.buckets = now, buckets
}
