package load

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
)

const (
	// Interval is the time between two samples.
	Interval = 500 * time.Millisecond
	// Warmup is how long the factor stays 1 after the first sample.
	Warmup = 10 * time.Second
	// constant is the time constant of the moving average.
	constant = 2 * time.Second
	// deadband is the change of the factor that is not published at once, but after settled.
	deadband = 0.02
	settled  = 10 * time.Second
	// longestStep bounds the time that one sample covers, as when the process was stopped.
	longestStep = 5 * time.Second
)

// Controller is the load of a zone: its factor, and the latencies of its requests. Get one from
// Sampler.New.
type Controller struct {
	id        engine.ZoneID
	sampler   *Sampler
	options   Options
	latencies *latencies    // nil without the signal
	published atomic.Uint64 // the bits of a float64

	// What follows belongs to the Sampler, under its lock.
	running int
	state
}

// state is what a Zone with other options goes on from.
type state struct {
	first, last time.Time // samples; zero: there was none
	told        time.Time // when the factor was published
	factor      float64
	tracks      [signals]track
}

// track is the recent past of a signal.
type track struct {
	last, average float64
	seen          bool
}

func newController(s *Sampler, id engine.ZoneID, o Options) *Controller {
	z := &Controller{sampler: s, id: id, options: o}
	z.factor = 1
	z.published.Store(math.Float64bits(1))
	if o.Uses(Latency) {
		z.latencies = newLatencies()
		measuring.Add(1)
	}
	return z
}

// inherit goes on from another zone.
func (z *Controller) inherit(from *Controller) {
	z.state = from.state
	z.tracks = [signals]track{} // the signals may act elsewhere
	z.factor = z.options.clamp(z.factor)
	z.publish(z.last)
}

// Factor returns what limits are to be multiplied by. It is safe for concurrent use.
func (z *Controller) Factor() float64 { return math.Float64frombits(z.published.Load()) }

// Options returns those of the zone.
func (z *Controller) Options() Options { return z.options }

// Answered notes that an answer to a request of a client has begun after a time. It is safe for
// concurrent use, as is Failed.
func (z *Controller) Answered(c Client, after time.Duration) { z.latencies.add(c, after) }

// Failed notes a request of a client that the back end failed on, which counts as the highest latency.
func (z *Controller) Failed(c Client) { z.latencies.add(c, z.Hi()) }

// Hi returns the latency from which on the factor is the floor.
func (z *Controller) Hi() time.Duration {
	return time.Duration(z.options.Ranges[Latency].Hi * float64(time.Second))
}

// Latency returns the 90th percentile, as it was last sampled. It reports false if there were too
// few requests. It is safe for concurrent use.
func (z *Controller) Latency() (time.Duration, bool) {
	if z.latencies == nil {
		return 0, false
	}
	p := time.Duration(z.latencies.latest.Load())
	return p, p > 0
}

// reading is a sample of a signal.
type reading struct {
	value float64
	known bool
}

// sample takes one reading of each signal.
func (z *Controller) sample(now time.Time, readings [signals]reading) {
	if z.first.IsZero() {
		z.first, z.last, z.told = now, now, now
	}
	passed := min(max(0, now.Sub(z.last)), longestStep)
	z.last = now
	down, up := 1.0, 1.0
	for s := range signals {
		if !z.options.Uses(s) {
			continue
		}
		lower, average := z.tracks[s].add(z.options.Ranges[s], readings[s], passed)
		present := z.options.of(s, lower)
		down *= present
		up *= min(present, z.options.of(s, average))
	}
	if now.Sub(z.first) < Warmup {
		return
	}
	down, up = z.options.clamp(down), z.options.clamp(up)
	if down < z.factor {
		z.factor = down
	} else {
		z.factor = max(z.factor, min(up, z.factor+z.options.rise(passed)))
	}
	change, extreme := math.Abs(z.factor-z.Factor()), z.factor == z.options.Floor || z.factor == 1 || z.factor == z.options.Ceiling
	if change > deadband || change > 0 && (extreme || now.Sub(z.told) >= settled) {
		z.publish(now)
	}
}

func (z *Controller) publish(now time.Time) {
	z.told = now
	z.published.Store(math.Float64bits(z.factor))
}

// add takes a reading, and returns the lower of the last two and the moving average. A signal
// that is not known counts as one that changes nothing.
func (t *track) add(r Range, now reading, passed time.Duration) (lower, average float64) {
	x := r.Lo / 2
	if now.known {
		x = min(max(0, now.value), r.Hi)
	}
	if !t.seen {
		t.seen, t.last, t.average = true, r.Lo/2, x
	}
	lower = min(x, t.last)
	t.average += (x - t.average) * (1 - math.Exp(-passed.Seconds()/constant.Seconds()))
	t.last = x
	return lower, t.average
}
