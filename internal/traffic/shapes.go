package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Every shape is for one limit: 100 units in 60 s, over 20 windows.
const (
	limit    = 100
	length   = 60 * time.Second
	duration = 20 * length
	start    = int64(1_700_000_000_000) // ms; a multiple of the window, as clocks in the wild are not
)

// arrival is one request.
type arrival struct {
	at  int64 // ms
	key int
}

// shape is a kind of traffic.
type shape struct {
	name, about string
	make        func(r *rand.Rand) []arrival
}

var shapes = []shape{
	{"poisson", "one client, independent requests at the rate of the limit", func(r *rand.Rand) []arrival {
		return poisson(r, 0, limit, start, start+duration.Milliseconds())
	}},
	{"boundary", "bursts of the whole limit just before and just after each full minute", func(r *rand.Rand) []arrival {
		var all []arrival
		for w := start; w < start+duration.Milliseconds(); w += length.Milliseconds() {
			for _, from := range []int64{w, w + length.Milliseconds() - 1000} {
				for range limit {
					all = append(all, arrival{at: from + r.Int64N(1000)})
				}
			}
		}
		return inOrder(all)
	}},
	{"on-off", "20 s at five times the limit, then 40 s of silence, drifting against the minute", func(r *rand.Rand) []arrival {
		var all []arrival
		const cycle = 61_700
		for from := start; from < start+duration.Milliseconds(); from += cycle {
			all = append(all, poisson(r, 0, 5*limit, from, from+20_000)...)
		}
		return all
	}},
	{"hot", "one client at three times the limit among a hundred at a tenth", func(r *rand.Rand) []arrival {
		all := poisson(r, 0, 3*limit, start, start+duration.Milliseconds())
		for key := 1; key <= 100; key++ {
			all = append(all, poisson(r, key, limit/10, start, start+duration.Milliseconds())...)
		}
		return inOrder(all)
	}},
	{"flood", "one client at ten times the limit", func(r *rand.Rand) []arrival {
		return poisson(r, 0, 10*limit, start, start+duration.Milliseconds())
	}},
}

// poisson returns independent arrivals of one key at a rate per window.
func poisson(r *rand.Rand, key int, rate float64, from, to int64) []arrival {
	var all []arrival
	mean := float64(length.Milliseconds()) / rate
	for t := float64(from) + r.ExpFloat64()*mean; t < float64(to); t += r.ExpFloat64() * mean {
		all = append(all, arrival{at: int64(t), key: key})
	}
	return all
}

func (a arrival) String() string { return fmt.Sprintf("%d@%d", a.key, a.at) }
