package windowtest

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

var gcraTables = []struct {
	name  string
	algo  window.GCRA
	steps []step
}{
	{"evenly", window.GCRA{}, []step{
		0: {0, 1, []verdict{allowed(1)}, []window.Policy{per(2, 10_000)}},
		1: {0, 1, []verdict{allowed(0)}, nil},
		2: {0, 1, []verdict{denied(0, 5_000)}, nil},
		3: {0, 2, []verdict{denied(0, 10_000)}, nil},
		4: {4_999, 1, []verdict{denied(0, 1)}, nil},
		5: {5_000, 1, []verdict{allowed(0)}, nil},
		6: {5_000, 1, []verdict{denied(0, 5_000)}, nil},
		7: {14_999, 2, []verdict{denied(1, 1)}, nil},
		8: {15_000, 3, []verdict{never(2)}, nil},
		9: {15_000, 2, []verdict{allowed(0)}, nil},
	}},
	{"no whole interval", window.GCRA{}, []step{
		0: {0, 3, []verdict{allowed(0)}, []window.Policy{per(3, 1_000)}},
		1: {0, 1, []verdict{denied(0, 334)}, nil},
		2: {0, 2, []verdict{denied(0, 667)}, nil},
		3: {333, 1, []verdict{denied(0, 1)}, nil},
		4: {334, 1, []verdict{allowed(0)}, nil},
		// The part of a unit that has leaked is not lost.
		5: {334, 1, []verdict{denied(0, 333)}, nil},
		6: {1_000, 2, []verdict{allowed(0)}, nil},
	}},
	{"a small burst", window.GCRA{Burst: 2}, []step{
		0: {0, 3, []verdict{never(2)}, []window.Policy{per(10, 10_000)}},
		1: {0, 2, []verdict{allowed(0)}, nil},
		2: {999, 1, []verdict{denied(0, 1)}, nil},
		3: {1_000, 1, []verdict{allowed(0)}, nil},
		4: {60_000, 2, []verdict{allowed(0)}, nil},
	}},
	{"a large burst", window.GCRA{Burst: 20}, []step{
		0: {0, 20, []verdict{allowed(0)}, []window.Policy{per(10, 10_000)}},
		1: {0, 1, []verdict{denied(0, 1_000)}, nil},
		2: {0, 20, []verdict{denied(0, 20_000)}, nil},
		3: {10_000, 10, []verdict{allowed(0)}, nil},
		4: {29_999, 20, []verdict{denied(19, 1)}, nil},
		5: {30_000, 20, []verdict{allowed(0)}, nil},
	}},
	{"several limits", window.GCRA{}, []step{
		0: {0, 2, []verdict{allowed(0), allowed(8)}, []window.Policy{per(2, 1_000), per(10, 60_000)}},
		1: {0, 1, []verdict{denied(0, 500), allowed(8)}, nil},
		2: {1_000, 2, []verdict{allowed(0), allowed(6)}, nil},
		3: {2_000, 2, []verdict{allowed(0), allowed(4)}, nil},
		4: {3_000, 2, []verdict{allowed(0), allowed(2)}, nil},
		5: {4_000, 2, []verdict{allowed(0), allowed(0)}, nil},
		6: {5_000, 1, []verdict{allowed(2), denied(0, 1_000)}, nil},
		7: {6_000, 1, []verdict{allowed(1), allowed(0)}, nil},
	}},
	{"a changed limit", window.GCRA{}, []step{
		0: {0, 10, []verdict{allowed(0)}, []window.Policy{per(10, 10_000)}},
		1: {0, 1, []verdict{denied(0, 1_000)}, nil},
		// Raised, it has room at once, and no more than it should.
		2: {0, 91, []verdict{denied(90, 100)}, []window.Policy{per(100, 10_000)}},
		// Lowered, it loses what it cannot hold when all units are a window old.
		3: {0, 1, []verdict{denied(0, 10_000)}, []window.Policy{per(5, 10_000)}},
		4: {0, 1, []verdict{denied(0, 10_000)}, []window.Policy{per(1, 10_000)}},
		5: {9_999, 1, []verdict{denied(0, 1)}, []window.Policy{per(5, 10_000)}},
		6: {10_000, 1, []verdict{allowed(4)}, nil},
		7: {10_000, 1, []verdict{never(0)}, []window.Policy{per(0, 10_000)}},
		8: {10_000, 5, []verdict{denied(4, 2_000)}, []window.Policy{per(5, 10_000)}},
	}},
	{"a lower limit erases nothing", window.GCRA{}, []step{
		0: {0, 10, []verdict{allowed(0)}, []window.Policy{per(10, 10_000)}},
		1: {4_999, 1, []verdict{denied(0, 5_001)}, []window.Policy{per(5, 10_000)}},
		2: {4_999, 1, []verdict{allowed(3)}, []window.Policy{per(10, 10_000)}},
		// 6.001 units, of which the lower limit holds 5 and loses 1.001 in 2,002 ms.
		3: {4_999, 1, []verdict{denied(0, 4_002)}, []window.Policy{per(5, 10_000)}},
		4: {9_001, 1, []verdict{allowed(0)}, nil},
		5: {9_001, 6, []verdict{denied(5, 1_000)}, []window.Policy{per(10, 10_000)}},
	}},
	{"a much lower limit", window.GCRA{}, []step{
		0: {0, 15, []verdict{allowed(5)}, []window.Policy{per(20, 4_000)}},
		1: {1_300, 1, []verdict{denied(0, 2_700)}, []window.Policy{per(1, 4_000)}},
		2: {3_999, 1, []verdict{denied(0, 1)}, nil},
		3: {4_000, 1, []verdict{allowed(0)}, nil},
		4: {4_000, 1, []verdict{denied(0, 4_000)}, nil},
	}},
	{"a changed burst stays", window.GCRA{Burst: 5}, []step{
		0: {0, 5, []verdict{allowed(0)}, []window.Policy{per(10, 10_000)}},
		1: {0, 1, []verdict{denied(0, 10_000)}, []window.Policy{per(1, 10_000)}},
		2: {1_000, 1, []verdict{allowed(0)}, []window.Policy{per(10, 10_000)}},
	}},
	{"a changed window", window.GCRA{}, []step{
		0: {0, 10, []verdict{allowed(0)}, []window.Policy{per(10, 10_000)}},
		1: {0, 1, []verdict{denied(0, 2_000)}, []window.Policy{per(10, 20_000)}},
		2: {0, 1, []verdict{denied(0, 100)}, []window.Policy{per(10, 1_000)}},
		3: {100, 1, []verdict{allowed(0)}, nil},
		// The first bucket was kept: a unit has come, and a tenth of one has leaked.
		4:  {100, 1, []verdict{denied(0, 1_900)}, []window.Policy{per(10, 10_000)}},
		5:  {2_000, 1, []verdict{allowed(0)}, nil},
		6:  {2_000, 1, []verdict{denied(0, 100)}, []window.Policy{per(10, 1_000)}},
		7:  {2_100, 1, []verdict{allowed(0)}, nil},
		8:  {2_100, 1, []verdict{denied(0, 1_900)}, []window.Policy{per(10, 10_000)}},
		9:  {3_999, 1, []verdict{denied(0, 1)}, nil},
		10: {4_000, 1, []verdict{allowed(0)}, nil},
	}},
	{"a window matters for a window", window.GCRA{}, []step{
		0: {0, 1, []verdict{allowed(1)}, []window.Policy{per(2, 10_000)}},
		1: {1, 9, []verdict{allowed(0)}, []window.Policy{per(10, 1_000)}},
		2: {1, 1, []verdict{denied(0, 10_000)}, []window.Policy{per(2, 10_000)}},
		3: {9_999, 1, []verdict{allowed(9)}, []window.Policy{per(10, 1_000)}},
		4: {9_999, 1, []verdict{denied(0, 10_000)}, []window.Policy{per(2, 10_000)}},
		5: {10_000, 1, []verdict{allowed(8)}, []window.Policy{per(10, 1_000)}},
		// No charge came with the long window for as long as that, and so it is a new one.
		6: {10_000, 1, []verdict{denied(0, 4_950)}, []window.Policy{per(2, 10_000)}},
	}},
	{"a changed window rounds up", window.GCRA{Burst: 2}, []step{
		0: {0, 1, []verdict{allowed(1)}, []window.Policy{per(1, 10_000)}},
		1: {1, 1, []verdict{allowed(0)}, nil},
		2: {1, 1, []verdict{denied(0, 3_333)}, []window.Policy{per(1, 3_333)}},
		3: {3_333, 1, []verdict{denied(0, 1)}, nil},
		4: {3_334, 1, []verdict{allowed(0)}, nil},
	}},
	{"a changed window divides first", window.GCRA{Burst: 2}, []step{
		0: {0, 1, []verdict{allowed(1)}, []window.Policy{per(1, 10_000)}},
		1: {2_510, 1, []verdict{allowed(0)}, nil},
		// 1.749 × 9000 is 15741, but not in floating point.
		2: {2_510, 1, []verdict{denied(0, 6_742)}, []window.Policy{per(1, 9_000)}},
	}},
	{"a level of 16 digits", window.GCRA{}, []step{
		0: {0, 900, []verdict{allowed(99)}, []window.Policy{per(999, 8_991_000_000_000)}},
		1: {60, 1, []verdict{allowed(98)}, nil},
		2: {60, 99, []verdict{denied(98, 8_999_999_940)}, nil},
	}},
	{"a level of almost 2^53", window.GCRA{}, []step{
		0: {0, 104_249_785, []verdict{allowed(0)}, []window.Policy{per(104_249_785, 86_400_000)}},
		1: {965, 104_249_785, []verdict{denied(1_164, 86_399_035)}, nil},
	}},
	{"a level of 2^53", window.GCRA{}, []step{
		0: {0, window.MaxProduct + 1, []verdict{never(window.MaxProduct)}, []window.Policy{per(window.MaxProduct, 1)}},
		1: {0, window.MaxProduct, []verdict{allowed(0)}, nil},
		2: {0, 1, []verdict{denied(0, 1)}, nil},
		3: {0, 2, []verdict{denied(0, 1)}, nil},
	}},
	{"large numbers", window.GCRA{}, []step{
		0: {0, 9_007_199_254_739, []verdict{allowed(1)}, []window.Policy{per(9_007_199_254_740, 1_000)}},
		1: {0, 2, []verdict{denied(1, 1)}, nil},
		2: {0, 1, []verdict{allowed(0)}, nil},
		3: {1, 9_007_199_255, []verdict{denied(9_007_199_254, 1)}, nil},
		4: {999, 9_007_199_254_740, []verdict{denied(8_998_192_055_485, 1)}, nil},
		5: {1_000, 9_007_199_254_740, []verdict{allowed(0)}, nil},
		6: {1_000_000_000_000, 1, []verdict{allowed(9_007_199_254_739)}, nil},
		7: {1_000_000_000_000, 9_007_199_254_739, []verdict{allowed(0)}, nil},
		// By now more has leaked than 64 bits can count.
		8: {1_000_002_000_000, 1, []verdict{allowed(9_007_199_254_739)}, nil},
	}},
	{"limits change places", window.GCRA{}, []step{
		0: {0, 2, []verdict{allowed(0), allowed(8)}, []window.Policy{per(2, 1_000), per(10, 60_000)}},
		1: {1_000, 2, []verdict{allowed(0), allowed(6)}, nil},
		2: {2_000, 1, []verdict{allowed(5), allowed(1)}, []window.Policy{per(10, 60_000), per(2, 1_000)}},
		3: {2_000, 1, []verdict{allowed(4), allowed(0)}, []window.Policy{per(10, 60_000), per(2, 1_000)}},
		// The one that was the second stays, and the one that comes is new.
		4: {2_000, 1, []verdict{allowed(3)}, []window.Policy{per(10, 60_000)}},
		5: {2_000, 1, []verdict{allowed(99), allowed(2)}, []window.Policy{per(100, 5_000), per(10, 60_000)}},
		// A policy with another window at the same index is the same limit.
		6: {2_000, 1, []verdict{allowed(98), allowed(1)}, []window.Policy{per(100, 10_000), per(10, 60_000)}},
	}},
	{"another policy", window.GCRA{}, []step{
		0: {0, 2, []verdict{allowed(0)}, []window.Policy{per(2, 10_000)}},
		1: {5_000, 1, []verdict{allowed(0), allowed(9)}, []window.Policy{per(2, 10_000), per(10, 60_000)}},
		2: {10_000, 1, []verdict{allowed(0)}, []window.Policy{per(2, 10_000)}},
		// The unit spent at 10 s counts under the second policy, too.
		3: {15_000, 1, []verdict{allowed(0), allowed(7)}, []window.Policy{per(2, 10_000), per(10, 60_000)}},
	}},
}

func testGCRATables(t *testing.T, open Open) {
	for _, table := range gcraTables {
		t.Run(table.name, func(t *testing.T) { newFixture(t, open, table.algo).run(table.steps) })
	}
	t.Run("redis-cell", func(t *testing.T) {
		for _, c := range RedisCell {
			f := newFixture(t, open, c.Algorithm)
			for i, row := range c.Rows {
				f.clock.Set(Start + row.At)
				d := f.take(f.charge("zone", "key", row.Cost, c.Policy))[0]
				want := window.Decision{
					Allowed: row.RetryAfter == 0, Limit: c.Policy.AtOnce(c.Algorithm), Remaining: row.Remaining,
					RetryAfter: row.RetryAfter, ResetAfter: row.ResetAfter, EffectiveWindow: d.EffectiveWindow, At: Start + row.At,
				}
				if d != want {
					f.Errorf("%s, row %d: %+v, want %+v", c.Command, i, d, want)
				}
			}
		}
	})
}

// Row is what redis-cell answers to a quantity (Cost) at a time, in ms.
type Row struct {
	At, Cost, Remaining    int64
	RetryAfter, ResetAfter time.Duration
}

// RedisCell is what the module and its kin document: the table that redis-cell
// tests itself with, and the examples of the manuals of redis-cell and Dragonfly.
var RedisCell = []struct {
	Command   string // key max_burst count period
	Algorithm window.GCRA
	Policy    window.Policy
	Rows      []Row
}{
	{"CL.THROTTLE foo 4 1 1", window.GCRA{Burst: 5}, per(1, 1_000), []Row{
		0:  {0, 6, 5, window.Never, 0},
		1:  {0, 1, 4, 0, 1 * time.Second},
		2:  {0, 1, 3, 0, 2 * time.Second},
		3:  {0, 1, 2, 0, 3 * time.Second},
		4:  {0, 1, 1, 0, 4 * time.Second},
		5:  {0, 1, 0, 0, 5 * time.Second},
		6:  {0, 1, 0, time.Second, 5 * time.Second},
		7:  {3_000, 1, 2, 0, 3 * time.Second},
		8:  {3_100, 1, 1, 0, 3_900 * time.Millisecond},
		9:  {4_000, 1, 1, 0, 4 * time.Second},
		10: {8_000, 1, 4, 0, time.Second},
		11: {9_500, 1, 4, 0, time.Second},
		12: {9_500, 0, 4, 0, time.Second},
		13: {9_500, 2, 2, 0, 3 * time.Second},
		14: {9_500, 5, 2, 3 * time.Second, 3 * time.Second},
	}},
	{"CL.THROTTLE user123 15 30 60", window.GCRA{Burst: 16}, per(30, 60_000), []Row{{0, 1, 15, 0, 2 * time.Second}}},
	{"CL.THROTTLE user123 20 120 60", window.GCRA{Burst: 21}, per(120, 60_000), []Row{{0, 1, 20, 0, 500 * time.Millisecond}}},
}

// testGCRASchedule compares every field of every decision with those of the
// virtual scheduling form of the algorithm: a theoretical arrival time, in ms ×
// limit.
func testGCRASchedule(t *testing.T, open Open) {
	f := newFixture(t, open, nil)
	denials := 0
	for walk := range rounds(60) {
		r, name := random(walk)
		algo := randomGCRA(r).(window.GCRA)
		policies := randomPolicies(r)
		for i := range policies {
			policies[i].Limit++
		}
		arrival := make([]int64, len(policies))
		for step := range 300 {
			f.clock.Add(r.Int64N(1 + r.Int64N(3_000)))
			now, take := f.clock.Now(), r.IntN(8) > 0
			c := window.Charge{Zone: "schedule", Key: name, Policies: policies, Cost: randomCost(r), Algorithm: algo}
			fits := true
			want := make([]window.Decision, len(policies))
			for j, p := range policies {
				burst, increment := p.AtOnce(algo), c.Cost*p.Window.Milliseconds()
				wait := max(arrival[j], now*p.Limit) + increment - burst*p.Window.Milliseconds() - now*p.Limit
				want[j] = window.Decision{Allowed: c.Cost == 0 || wait <= 0, Limit: burst, At: now}
				switch {
				case want[j].Allowed:
				case c.Cost > burst:
					want[j].RetryAfter = window.Never
				default:
					want[j].RetryAfter = ceilMillis(wait, p.Limit)
				}
				fits = fits && want[j].Allowed
			}
			for j, p := range policies {
				d, length := &want[j], p.Window.Milliseconds()
				arrival[j] = max(arrival[j], now*p.Limit)
				if take && fits {
					arrival[j] += c.Cost * length
				}
				ahead := arrival[j] - now*p.Limit
				d.Remaining = (d.Limit*length - ahead) / length
				d.ResetAfter = ceilMillis(ahead, p.Limit)
				d.EffectiveWindow = ceilMillis(ahead+(d.Remaining+1-d.Limit)*length, p.Limit)
			}
			ask := f.peek
			if take {
				ask = f.take
			}
			if got := ask(c); !slices.Equal(got, want) {
				f.Fatalf("%s, step %d, take %v, %+v: %+v, want %+v", name, step, take, c, got, want)
			}
			if !fits {
				denials++
			}
		}
	}
	t.Logf("60 walks of 300 steps, %d denials", denials)
}

func ceilMillis(n, per int64) time.Duration {
	ms := n / per
	if n > ms*per {
		ms++
	}
	return time.Duration(ms) * time.Millisecond
}

// gcraBound is how many units may pass in one window, as the doc of GCRA says.
func gcraBound(a window.GCRA, p window.Policy) int { return int(p.AtOnce(a) + p.Limit - 1) }

// testGCRAWorstCase reaches the bound, and never passes it.
func testGCRAWorstCase(t *testing.T, open Open) {
	for _, c := range []struct {
		algo   window.GCRA
		policy window.Policy
	}{
		{window.GCRA{}, per(1, 10_000)},
		{window.GCRA{}, per(2, 10_000)},
		{window.GCRA{}, per(10, 10_000)},
		{window.GCRA{}, per(7, 1_000)},
		{window.GCRA{}, per(100, 100)},
		{window.GCRA{Burst: 1}, per(10, 10_000)},
		{window.GCRA{Burst: 2}, per(7, 1_000)},
		{window.GCRA{Burst: 3}, per(10, 10_000)},
		{window.GCRA{Burst: 25}, per(10, 10_000)},
		{window.GCRA{Burst: 1000}, per(3, 5_000)},
	} {
		f := newFixture(t, open, c.algo)
		one := f.charge("worst", "key", 1, c.policy)
		units := 0
		for end := Start + c.policy.Window.Milliseconds(); f.clock.Now() < end; {
			d := f.take(one)[0]
			if d.Allowed {
				units++
			}
			if !d.Allowed || d.Remaining == 0 {
				f.clock.Add(max(1, d.EffectiveWindow.Milliseconds()))
			}
		}
		if units != gcraBound(c.algo, c.policy) {
			t.Errorf("%+v, %+v: %d units in one window, want %d", c.algo, c.policy, units, gcraBound(c.algo, c.policy))
		}
	}
	for walk := range rounds(20) {
		r, name := random(walk)
		algo, policy := randomGCRA(r).(window.GCRA), per(1+r.Int64N(20), 1_000+r.Int64N(20_000))
		newFixture(t, open, algo).atMost(r, name, int64(gcraBound(algo, policy)), policy)
	}
}

func testGCRASettle(t *testing.T, open Open) {
	f := newFixture(t, open, window.GCRA{})
	c := f.charge("zone", "key", 4)
	first := f.take(c)[0].At
	f.clock.Add(1_500)
	second := f.take(c)[0].At // 1.5 of the first have leaked
	f.wantRemaining(c, 3)
	f.givesBack(c, second+1, 4, 3)
	f.givesBack(c, first, 1, 3) // it may have been the first to leak
	f.givesBack(c, first, 3, 5)
	f.givesBack(c, second, 4, 9)
	f.givesBack(c, second, 100, 10)
	f.charges(c, 3, 7)
	f.charges(c, 9, 0)
	if d := f.peek(c)[0]; d.RetryAfter != 6*time.Second || d.ResetAfter != 10*time.Second {
		f.Errorf("2 more spent than fit: Peek = %+v, want 12 in the bucket", d)
	}
	f.chargeMore(c, 100)
	if d := f.peek(c)[0]; d.RetryAfter != 10*time.Second || d.ResetAfter != 10*time.Second {
		f.Errorf("many more spent than fit: Peek = %+v, want a window", d)
	}
	c = f.charge("zone", "step", 10)
	second = f.take(c)[0].At
	f.clock.Add(-5_000) // what was spent at second may be there still
	f.givesBack(c, second, 2, 2)
	huge := f.charge("zone", "huge", 10)
	f.take(huge)
	f.clock.Add(100)
	f.givesBack(huge, f.clock.Now()-100, window.MaxProduct, 10)
	f.chargeMore(huge, window.MaxProduct)
	f.givesBack(huge, -window.MaxProduct, window.MaxProduct, 0)
}

// testGCRAClockBack steps the clock back by a day: the bucket does not leak until
// the clock is where it was, unless a request has set it right.
func testGCRAClockBack(t *testing.T, open Open) {
	f := newFixture(t, open, window.GCRA{})
	c := f.charge("zone", "key", 1)
	f.clock.Add(24 * 3_600_000)
	for range 10 {
		f.take(c)
	}
	f.clock.Set(Start)
	want := window.Decision{
		Limit: 10, RetryAfter: time.Second, ResetAfter: 10 * time.Second, EffectiveWindow: time.Second,
	}
	for _, at := range []struct {
		ms  int64
		ask func(...window.Charge) []window.Decision
	}{{0, f.peek}, {5_000, f.peek}, {5_000, f.take}, {5_000, f.peek}} {
		f.clock.Set(Start + at.ms)
		want.At = f.clock.Now()
		if d := at.ask(c)[0]; d != want {
			f.Errorf("after the step, at %d: %+v, want %+v", at.ms, d, want)
		}
	}
	for _, wait := range []string{"after a denial", "after a spending"} {
		f.clock.Add(999)
		if d := f.take(c)[0]; d.Allowed || d.RetryAfter != time.Millisecond {
			f.Errorf("%s, 999ms: Take = %+v, want a wait of 1ms", wait, d)
		}
		f.clock.Add(1)
		if d := f.take(c)[0]; !d.Allowed || d.Remaining != 0 {
			f.Errorf("%s, 1s: Take = %+v, want it to pass", wait, d)
		}
	}
	f.clock.Add(1_000)
	f.take(c)
	f.clock.Add(-500)
	if d := f.take(f.charge("zone", "key", 0))[0]; d.Remaining != 0 || d.ResetAfter != 10*time.Second {
		f.Errorf("a look after a step of 500ms: %+v, want a full bucket", d)
	}
	f.clock.Add(1_000)
	if d := f.take(c)[0]; !d.Allowed {
		f.Errorf("1s after the look: Take = %+v, want it to pass: at %d", d, f.clock.Now())
	}
	for name, change := range map[string]func(c window.Charge){
		"Take":       func(c window.Charge) { f.take(c) },
		"ChargeMore": func(c window.Charge) { f.chargeMore(c, 1) },
	} {
		c := f.charge("step", name, 3)
		f.clock.Add(24 * 3_600_000)
		f.take(c)
		f.clock.Add(-24 * 3_600_000)
		c.Cost = 1
		change(c)
		f.wantRemaining(c, 6)
		f.clock.Add(1_000)
		f.wantRemaining(c, 7)
	}
}
