// Package windowtest holds the tests that every window.Store passes with every
// algorithm.
package windowtest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

var (
	seed = flag.Uint64("windowtest.seed", 1, "seed of the random tests of stores; 0 takes one at random, and prints it")
	part = flag.Int("windowtest.part", 100, "percent of the walks of random tests that run, at least 2 of each; make test-long runs all")
)

// rounds returns how many of n walks run.
func rounds(n int) int { return max(min(n, 2), n**part/100) }

// Clock is the time of a store under test, in Unix milliseconds. It moves when it
// is told to.
type Clock struct{ ms atomic.Int64 }

// Start is when every Clock starts: at a multiple of every slice of the tests, and
// late enough that nothing expires on the clock of a server under test.
const Start int64 = 3_600_000_000_000

// NewClock returns a clock at Start. It moves only when set.
func NewClock() *Clock {
	c := new(Clock)
	c.Set(Start)
	return c
}

// Now returns the time.
func (c *Clock) Now() int64 { return c.ms.Load() }

// Set moves the clock to a time.
func (c *Clock) Set(ms int64) { c.ms.Store(ms) }

// Add moves the clock by some milliseconds, which may be negative.
func (c *Clock) Add(ms int64) { c.ms.Add(ms) }

// Charge returns a charge of one unit to a counter of zset with one limit.
func Charge(zone, key string, limit int64, length time.Duration) window.Charge {
	return window.Charge{
		Zone: zone, Key: key, Cost: 1, Algorithm: window.Zset{},
		Policies: []window.Policy{{Limit: limit, Window: length}},
	}
}

// Open returns an empty store that lives in the time of clock. It is closed at
// the end of the test.
type Open func(t *testing.T, clock *Clock) window.Store

// suite is what Exercise runs. The tests that are long make many thousands of calls.
var suite = []struct {
	name string
	long bool
	run  func(*testing.T, Open)
}{
	{"Tables", false, testTables},
	{"SameMillisecond", true, testSameMillisecond},
	{"ZonesAllOrNothing", false, testZones},
	{"Batch", false, testBatch},
	{"Room", false, testRoom},
	{"PeekWritesNothing", false, testPeek},
	{"Settle", false, testSettle},
	{"SettleWhereNothingIs", false, testSettleNothing},
	{"SettleMany", false, testSettleMany},
	{"Reset", false, testReset},
	{"ClockStepsBack", false, testClockBack},
	{"ClockStepsBackOntoAUnit", false, testClockBackOnto},
	{"ClockJumps", true, testClockJumps},
	{"ClockBackInBatch", false, testClockBackInBatch},
	{"ClockBackWithoutUnits", false, testClockBackWithoutUnits},
	{"ForgottenStays", false, testForgottenStays},
	{"HorizonGoes", false, testHorizonGoes},
	{"WindowFromBefore1970", false, testWindowBefore1970},
	{"Keys", true, testKeys},
	{"Invalid", false, testInvalid},
	{"RetryAfter", true, testRetryAfter},
	{"ZsetIsExact", true, testZsetExact},
	{"LogIsExact", true, testLogExact},
	{"LogEdges", true, testLogEdges},
	{"MillisecondSlicesAreExact", true, testMillisecondSlices},
	{"MillisecondLayersAreExact", true, testMillisecondLayers},
	{"LayersAreFineSlices", true, testLayersAreFine},
	{"ManyLayers", true, testManyLayers},
	{"StreamIsExact", true, testStreamExact},
	{"StreamDecidesAsZset", true, testStreamAsZset},
	{"StrictNeverOver", true, testStrictNeverOver},
	{"StrictWorstCase", false, testStrictWorstCase},
	{"AdaptiveSwitches", true, testAdaptiveSwitches},
	{"WeightedWorstCase", true, alsoPacked(testWeightedWorstCase)},
	{"GCRATables", false, alsoPacked(testGCRATables)},
	{"GCRAIsGCRA", true, alsoPacked(testGCRASchedule)},
	{"GCRAWorstCase", true, alsoPacked(testGCRAWorstCase)},
	{"GCRASettle", false, alsoPacked(testGCRASettle)},
	{"GCRAClockStepsBack", false, alsoPacked(testGCRAClockBack)},
	{"GCRALimitsDiffer", true, alsoPacked(testGCRALimitsDiffer)},
	{"GCRALimitIsLowered", true, alsoPacked(testGCRALimitIsLowered)},
	{"GCRAWindowsDiffer", true, alsoPacked(testGCRAWindowsDiffer)},
	{"GCRAManyWindows", true, alsoPacked(testGCRAManyWindows)},
	{"WeightedUnits", false, alsoPacked(testWeightedUnits)},
	{"ManySlices", true, testManySlices},
	{"HistoryStays", true, testHistoryStays},
	{"Horizon", true, testHorizon},
	{"HeldTables", false, testHeldTables},
	{"HeldWalk", false, testHeldWalk},
}

// Exercise runs the suite, but for the tests that are named.
func Exercise(t *testing.T, open Open, without ...string) { exercise(t, open, open, without) }

// ExerciseRecorded is Exercise of a Player, for which the long tests are Recorded: they hold the
// model against what the suite wants, and the Player against the model.
func ExerciseRecorded(t *testing.T, openModel, openPlayer Open, without ...string) {
	model := func(t *testing.T, clock *Clock) window.Store { return changing{openModel(t, clock), apart} }
	exercise(t, openPlayer, Recorded(model, openPlayer), without)
}

func exercise(t *testing.T, open, openLong Open, without []string) {
	for _, test := range suite {
		if slices.Contains(without, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.long {
				test.run(t, openLong)
			} else {
				test.run(t, open)
			}
		})
	}
}

// variants are the algorithms, each in the forms that take different paths.
var variants = []struct {
	name string
	algo window.Algorithm
}{
	{"zset", window.Zset{}},
	{"log", window.Log{}},
	{"slices", window.Slices{}},
	{"slices of a second", window.Slices{Size: time.Second}},
	{"weighted slices", window.Slices{Count: 10, Weighted: true}},
	{"one weighted slice", window.Slices{Count: 1, Weighted: true}},
	{"adaptive slices", window.Slices{Min: 100 * time.Millisecond, Max: time.Second}},
	{"layers", window.Layers{Coarse: 5 * time.Second, Fine: time.Second}},
	{"layers of odd lengths", window.Layers{Coarse: 4900 * time.Millisecond, Fine: 100 * time.Millisecond}},
	{"gcra", window.GCRA{}},
	{"stream", window.Stream{}},
	{"stream that keeps", window.Stream{Keep: time.Hour}},
}

// Algorithms returns those that the suite runs with.
func Algorithms() []window.Algorithm {
	var all []window.Algorithm
	for _, v := range variants {
		all = append(all, v.algo)
	}
	return all
}

// each runs a test with every algorithm, each time on an empty store.
func each(t *testing.T, open Open, run func(f *fixture)) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) { run(newFixture(t, open, v.algo)) })
	}
	for _, algo := range []window.Algorithm{window.GCRA{}, window.Slices{Count: 1, Weighted: true}} {
		t.Run("packed "+algo.Name(), func(t *testing.T) { run(newFixture(t, packed(open), algo)) })
	}
}

// eachOfWindows is each without the algorithms in which units have no time at
// which they leave the window.
func eachOfWindows(t *testing.T, open Open, run func(f *fixture)) {
	each(t, open, func(f *fixture) {
		if f.algo.Name() != "gcra" {
			run(f)
		}
	})
}

// eachOfSeconds is eachOfWindows without the algorithms that do not keep seconds
// apart.
func eachOfSeconds(t *testing.T, open Open, run func(f *fixture)) {
	eachOfWindows(t, open, func(f *fixture) {
		if f.algo != (window.Slices{Count: 1, Weighted: true}) {
			run(f)
		}
	})
}

// fixture is a store with one algorithm.
type fixture struct {
	*testing.T
	clock *Clock
	store window.Store
	algo  window.Algorithm
}

func newFixture(t *testing.T, open Open, algo window.Algorithm) *fixture {
	clock := NewClock()
	return &fixture{t, clock, open(t, clock), algo}
}

// charge returns a charge on a counter of limit 10 in 10 s, unless policies say
// otherwise.
func (f *fixture) charge(zone, key string, cost int64, policies ...window.Policy) window.Charge {
	if policies == nil {
		policies = []window.Policy{per(10, 10_000)}
	}
	return window.Charge{Zone: zone, Key: key, Policies: policies, Cost: cost, Algorithm: f.algo}
}

func (f *fixture) take(charges ...window.Charge) []window.Decision {
	f.Helper()
	ds, err := f.store.Take(f.Context(), charges)
	if err != nil {
		f.Fatalf("Take(%v): %v", charges, err)
	}
	return ds
}

func (f *fixture) peek(charges ...window.Charge) []window.Decision {
	f.Helper()
	ds, err := f.store.Peek(f.Context(), charges)
	if err != nil {
		f.Fatalf("Peek(%v): %v", charges, err)
	}
	return ds
}

func (f *fixture) giveBack(c window.Charge, at, units int64) {
	f.Helper()
	if err := f.store.GiveBack(f.Context(), c, at, units); err != nil {
		f.Fatalf("GiveBack(%v, %d, %d): %v", c, at, units, err)
	}
}

func (f *fixture) chargeMore(c window.Charge, units int64) {
	f.Helper()
	if err := f.store.ChargeMore(f.Context(), c, units); err != nil {
		f.Fatalf("ChargeMore(%v, %d): %v", c, units, err)
	}
}

// givesBack gives back, and looks at what is left then.
func (f *fixture) givesBack(c window.Charge, at, units, want int64) {
	f.Helper()
	f.giveBack(c, at, units)
	f.wantRemaining(c, want)
}

// charges charges more, and looks at what is left then.
func (f *fixture) charges(c window.Charge, units, want int64) {
	f.Helper()
	f.chargeMore(c, units)
	f.wantRemaining(c, want)
}

// atMost takes at random, and lets no window hold more than a bound.
func (f *fixture) atMost(r *rand.Rand, name string, bound int64, policy window.Policy) {
	var admitted Log
	for step := range 400 {
		f.clock.Add(r.Int64N(1 + r.Int64N(2_000)))
		c := f.charge("walk", name, randomCost(r), policy)
		if f.take(c)[0].Allowed {
			admitted.Spend(f.clock.Now(), c.Cost)
		}
		if n := admitted.Count(f.clock.Now(), policy); n > bound {
			f.Fatalf("%s, step %d, %+v: %d units in %+v, want %d at most", name, step, f.algo, n, policy, bound)
		}
	}
}

// wantRemaining looks at what is left of the charge's first limit.
func (f *fixture) wantRemaining(c window.Charge, want int64) {
	f.Helper()
	c.Cost = 0
	if got := f.peek(c)[0].Remaining; got != want {
		f.Errorf("zone %q, key %.20q: remaining = %d, want %d", c.Zone, c.Key, got, want)
	}
}

// per returns a policy with a window in milliseconds.
func per(limit, ms int64) window.Policy {
	return window.Policy{Limit: limit, Window: time.Duration(ms) * time.Millisecond}
}

var atRandom sync.Once

// random returns a source for one walk of a test, and a name that tells how to
// repeat it.
func random(walk int) (*rand.Rand, string) {
	atRandom.Do(func() {
		if *seed == 0 {
			*seed = rand.Uint64()
			println("-windowtest.seed", *seed)
		}
	})
	return rand.New(rand.NewPCG(*seed, uint64(walk))), fmt.Sprintf("walk %d of -windowtest.seed=%d", walk, *seed)
}

// TakeEach is TakeBatch of a store that takes one request after the other.
func TakeEach(ctx context.Context, take func(context.Context, []window.Charge) ([]window.Decision, error), requests [][]window.Charge) []window.Result {
	results := make([]window.Result, len(requests))
	for i, charges := range requests {
		results[i].Decisions, results[i].Err = take(ctx, charges)
	}
	return results
}
