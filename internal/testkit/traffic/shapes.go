// Package traffic is traffic of several shapes, and an oracle that judges what
// algorithms make of it.
package traffic

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Every shape runs over 20 windows against one limit.
const (
	Limit    = 100
	Length   = 60 * time.Second
	Duration = 20 * Length
	Start    = int64(1_700_000_040_000) // ms; a full minute
)

// Policies is the limit.
var Policies = []window.Policy{{Limit: Limit, Window: Length}}

// Arrival is one request.
type Arrival struct {
	At  int64 // ms
	Key int
}

// Shape is a kind of traffic.
type Shape struct {
	Name, About string
	Make        func(r *rand.Rand) []Arrival
}

// Shapes are all of them.
var Shapes = []Shape{
	{"poisson", "one client, independent requests at the rate of the limit", func(r *rand.Rand) []Arrival {
		return Poisson(r, 0, Limit, Start, Start+Duration.Milliseconds())
	}},
	{"boundary", "bursts of the whole limit just before and just after each full minute", func(r *rand.Rand) []Arrival {
		var all []Arrival
		for w := Start; w < Start+Duration.Milliseconds(); w += Length.Milliseconds() {
			for _, from := range []int64{w, w + Length.Milliseconds() - 1000} {
				for range Limit {
					all = append(all, Arrival{At: from + r.Int64N(1000)})
				}
			}
		}
		return inOrder(all)
	}},
	{"on-off", "20 s at five times the limit, then 40 s of silence, drifting against the minute", func(r *rand.Rand) []Arrival {
		var all []Arrival
		const cycle = 61_700
		for from := Start; from < Start+Duration.Milliseconds(); from += cycle {
			all = append(all, Poisson(r, 0, 5*Limit, from, from+20_000)...)
		}
		return all
	}},
	{"hot", "one client at three times the limit among a hundred at a tenth", func(r *rand.Rand) []Arrival {
		all := Poisson(r, 0, 3*Limit, Start, Start+Duration.Milliseconds())
		for key := 1; key <= 100; key++ {
			all = append(all, Poisson(r, key, Limit/10, Start, Start+Duration.Milliseconds())...)
		}
		return inOrder(all)
	}},
	{"flood", "one client at ten times the limit", func(r *rand.Rand) []Arrival {
		return Poisson(r, 0, 10*Limit, Start, Start+Duration.Milliseconds())
	}},
}

// Seeded returns a source that repeats what it did.
func Seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) } //nolint:gosec // repeatable on purpose

func inOrder(all []Arrival) []Arrival {
	slices.SortStableFunc(all, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	return all
}

// Poisson returns independent arrivals of one key at a rate per Length, in the ms from and up to to.
func Poisson(r *rand.Rand, key int, rate float64, from, to int64) []Arrival {
	var all []Arrival
	mean := float64(Length.Milliseconds()) / rate
	for t := float64(from) + r.ExpFloat64()*mean; t < float64(to); t += r.ExpFloat64() * mean {
		all = append(all, Arrival{At: int64(t), Key: key})
	}
	return all
}
