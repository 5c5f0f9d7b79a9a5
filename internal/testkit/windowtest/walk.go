package windowtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const walkSteps = 500

// Agree walks two stores through the same random calls, on one clock that also
// steps back, and compares every field of every decision. Each algorithm gets a
// number of walks. The first store says what follows; a Player answers each walk in one
// round trip.
func Agree(t *testing.T, walks int, openModel, open Open) {
	for _, v := range walked {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			twin := newTwin(t, clock, openModel, open)
			denials := 0
			for n := range rounds(walks) {
				r, name := random(n)
				w := &walk{T: t, Rand: r, clock: clock, algo: v.algo, twin: twin}
				twin.begin(name)
				w.run(n)
				denials += w.denials
			}
			twin.flush()
			t.Logf("%d walks of %d steps, %d denials", rounds(walks), walkSteps, denials)
		})
	}
}

// walked are the algorithms of the walks, with random options.
var walked = []struct {
	name string
	algo func(*rand.Rand) window.Algorithm
}{
	{"zset", func(*rand.Rand) window.Algorithm { return window.Zset{} }},
	{"log", func(*rand.Rand) window.Algorithm { return window.Log{} }},
	{"slices", func(r *rand.Rand) window.Algorithm { return randomSlices(r, false) }},
	{"weighted slices", func(r *rand.Rand) window.Algorithm { return randomSlices(r, true) }},
	{"few slices", func(r *rand.Rand) window.Algorithm { return fewSlices(r, r.IntN(2) == 0) }},
	{"adaptive slices", randomAdaptive},
	{"layers", randomLayers},
	{"gcra", randomGCRA},
	{"stream", func(*rand.Rand) window.Algorithm { return window.Stream{} }},
	{"stream that keeps", randomStream},
	{"mixed", func(r *rand.Rand) window.Algorithm {
		switch r.IntN(7) {
		case 0:
			return window.Zset{}
		case 5:
			return window.Log{}
		case 1:
			return randomLayers(r)
		case 2:
			return randomAdaptive(r)
		case 3:
			return randomGCRA(r)
		case 4:
			return window.Stream{}
		default:
			return randomSlices(r, r.IntN(2) == 0)
		}
	}},
}

// Walked returns one of each of the algorithms of the walks.
func Walked() []window.Algorithm {
	r, _ := random(0)
	var all []window.Algorithm
	for _, v := range walked {
		all = append(all, v.algo(r))
	}
	return all
}

func randomSlices(r *rand.Rand, weighted bool) window.Algorithm {
	a := window.Slices{Weighted: weighted}
	switch r.IntN(4) {
	case 0:
		a.Count = 1 + r.Int64N(20)
	case 1:
		a.Size = time.Duration(100+r.Int64N(1+r.Int64N(15_000))) * time.Millisecond // may be above the window
	case 2:
		a.Count = 1
	}
	return a
}

// fewSlices returns slices that can be packed.
func fewSlices(r *rand.Rand, weighted bool) window.Algorithm {
	return window.Slices{Count: 1 + r.Int64N(MaxPackedSlices), Weighted: weighted}
}

func randomAdaptive(r *rand.Rand) window.Algorithm {
	shortest := 100 + r.Int64N(1_000)
	return window.Slices{
		Min: time.Duration(shortest) * time.Millisecond,
		Max: time.Duration(shortest+r.Int64N(5_000)) * time.Millisecond,
	}
}

// randomLayers returns layers for windows of 5 s or more.
func randomLayers(r *rand.Rand) window.Algorithm {
	fine := time.Duration(100+r.Int64N(1_500)) * time.Millisecond
	most := int64(5 * time.Second / fine)
	return window.Layers{Coarse: time.Duration(1+r.Int64N(most)) * fine, Fine: fine}
}

func randomGCRA(r *rand.Rand) window.Algorithm {
	if r.IntN(2) == 0 {
		return window.GCRA{}
	}
	return window.GCRA{Burst: 1 + r.Int64N(30)}
}

func randomStream(r *rand.Rand) window.Algorithm {
	return window.Stream{Keep: time.Duration(r.Int64N(200_000)) * time.Millisecond}
}

// walk is one walk: two zones, whose policies change now and then.
type walk struct {
	*testing.T
	*rand.Rand
	clock   *Clock
	algo    func(*rand.Rand) window.Algorithm
	twin    *twin
	zones   [2]walkedZone
	scale   int64   // of limits and costs
	spent   []int64 // when something was
	denials int
}

type walkedZone struct {
	name     string
	policies []window.Policy
	algo     window.Algorithm
	pack     int64
	windows  [3]time.Duration // that take turns
}

func (w *walk) run(n int) {
	w.scale = 1
	if n%4 == 3 {
		w.scale = 1 + w.Int64N(1+w.Int64N(100_000))
	}
	for z := range w.zones {
		w.zones[z] = walkedZone{name: fmt.Sprintf("walk%d-%d", n, z), policies: w.policies(), algo: w.algo(w.Rand)}
		for i := range w.zones[z].windows {
			w.zones[z].windows[i] = w.policies()[0].Window
		}
		if window.CheckPack(w.zones[z].algo, 0, 1) == nil && w.IntN(2) == 0 {
			w.zones[z].pack = 1 << 20 // few share a hash: what is over may count again under another limit
			w.keepPackable(&w.zones[z])
		}
	}
	for range walkSteps {
		w.moveClock()
		z := &w.zones[w.IntN(2)]
		switch w.IntN(60) {
		case 0:
			z.policies = w.policies()
		case 1:
			p := &z.policies[w.IntN(len(z.policies))]
			p.Limit = w.scaled(w.Int64N(20))
		case 2:
			z.policies = z.policies[:1]
		case 4, 5, 6, 7:
			w.changeWindow(z)
		case 3:
			switch a := z.algo.(type) { // options are no part of a counter's name
			case window.Slices:
				z.algo = randomSlices(w.Rand, a.Weighted)
				if a.Max > 0 {
					z.algo = randomAdaptive(w.Rand)
				}
			case window.Layers:
				z.algo = randomLayers(w.Rand)
			case window.GCRA:
				z.algo = randomGCRA(w.Rand)
			case window.Stream:
				if a.Keep > 0 {
					z.algo = randomStream(w.Rand)
				}
			}
		}
		w.keepPackable(z)
		w.call()
	}
}

// changeWindow gives a policy one of the windows of the zone, as a placeholder does.
func (w *walk) changeWindow(z *walkedZone) {
	p := &z.policies[w.IntN(len(z.policies))]
	p.Window = z.windows[w.IntN(len(z.windows))]
}

func (w *walk) policies() []window.Policy {
	policies := randomPolicies(w.Rand)
	for i := range policies {
		policies[i].Limit = w.scaled(policies[i].Limit)
	}
	return policies
}

// scaled returns n units, 0 to 20, times the scale of the walk; now and then a round number.
func (w *walk) scaled(n int64) int64 {
	if n == 0 || w.IntN(4) == 0 {
		return n * w.scale
	}
	return (n-1)*w.scale + 1 + w.Int64N(w.scale)
}

// keepPackable changes a zone that is packed so that it can be.
func (w *walk) keepPackable(z *walkedZone) {
	if window.CheckPack(z.algo, len(z.policies), z.pack) == nil {
		return
	}
	z.policies = z.policies[:1]
	if a, ok := z.algo.(window.Slices); ok {
		z.algo = fewSlices(w.Rand, a.Weighted)
	}
}

func (w *walk) moveClock() {
	switch n := w.IntN(200); {
	case n < 40:
	case n < 186:
		w.clock.Add(w.Int64N(1_500))
	case n < 190:
		w.clock.Add(w.Int64N(100_000))
	case n < 197:
		w.clock.Add(-w.Int64N(5_000))
	case n < 199:
		w.clock.Add(-w.Int64N(100_000))
	default:
		w.clock.Set(Start + w.Int64N(24*3_600_000))
	}
}

func (w *walk) request() []window.Charge {
	first, charges := w.IntN(2), []window.Charge(nil)
	for k := range 1 + w.IntN(2) {
		z := w.zones[(first+k)%2]
		charges = append(charges, window.Charge{
			Zone: z.name, Key: string(rune('a' + w.IntN(2))), Cost: w.scaled(randomCost(w.Rand)),
			Policies: slices.Clone(z.policies), Algorithm: z.algo, Pack: z.pack,
		})
	}
	return charges
}

// call makes a call.
func (w *walk) call() {
	c := Call{Op: Take, Requests: [][]window.Charge{w.request()}}
	switch n := w.IntN(100); {
	case n < 60:
	case n < 70:
		c.Op = Peek
	case n < 80:
		c.Op, c.Requests = TakeBatch, append(c.Requests, w.request(), w.request())
	case n < 98:
		c.Op, c.At, c.Delta = Settle, w.clock.Now(), w.scaled(w.Int64N(4))-w.scaled(w.Int64N(9))
		if len(w.spent) > 0 {
			c.At = w.spent[max(0, len(w.spent)-1-w.IntN(10))]
		}
	default:
		c.Op = Reset
	}
	for _, r := range w.twin.do(c) {
		if ds := r.Decisions; window.Allowed(ds) && len(ds) > 0 {
			w.spent = append(w.spent, ds[0].At)
		} else if len(ds) > 0 {
			w.denials++
		}
	}
}
