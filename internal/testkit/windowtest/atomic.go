package windowtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func testSameMillisecond(t *testing.T, open Open) {
	each(t, open, func(f *fixture) {
		passed := 0
		for range 1_000 {
			if window.Allowed(f.take(f.charge("zone", "key", 1))) {
				passed++
			}
		}
		if passed != 10 {
			f.Errorf("%d of 1000 requests in one millisecond passed, want 10", passed)
		}
	})
}

func testZones(t *testing.T, open Open) {
	each(t, open, func(f *fixture) {
		full, free := f.charge("full", "key", 3, per(2, 10_000)), f.charge("free", "key", 3)
		for name, charges := range map[string][]window.Charge{
			"the second denies": {free, full},
			"the first denies":  {full, free},
		} {
			ds := f.take(charges...)
			if window.Allowed(ds) {
				f.Errorf("%s: Take = %+v, want a denial", name, ds)
			}
			f.wantRemaining(free, 10)
			f.wantRemaining(full, 2)
			for i, c := range charges {
				if passes := c.Zone == "free"; ds[i].Allowed != passes {
					f.Errorf("%s: zone %s: allowed = %v, want %v", name, c.Zone, ds[i].Allowed, passes)
				} else if passes && (ds[i].Remaining != 10 || ds[i].RetryAfter != 0) {
					f.Errorf("%s: zone %s: %+v, want 10 remaining and no wait", name, c.Zone, ds[i])
				}
			}
		}
		other := f.charge("free", "other", 2)
		other.Algorithm = otherThan(f.algo)
		ds := f.take(free, f.charge("full", "key", 2, per(2, 10_000)), other)
		if want := []int64{7, 0, 8}; !window.Allowed(ds) || ds[0].Remaining != want[0] || ds[1].Remaining != want[1] || ds[2].Remaining != want[2] {
			f.Errorf("Take of three = %+v, want %v remaining", ds, want)
		}
		f.wantRemaining(free, 7)
		f.wantRemaining(full, 0)
		f.wantRemaining(other, 8)
	})
}

func otherThan(a window.Algorithm) window.Algorithm {
	if a.Name() == "zset" {
		return window.Slices{}
	}
	return window.Zset{}
}

func testBatch(t *testing.T, open Open) {
	each(t, open, func(f *fixture) {
		bad := f.charge("zone", "key", -1)
		results := f.store.TakeBatch(f.Context(), [][]window.Charge{
			{f.charge("zone", "key", 6)},
			{f.charge("zone", "key", 6)},
			{bad},
			{f.charge("zone", "other", 6), f.charge("zone", "key", 4)},
			{f.charge("zone", "other", 4), f.charge("zone", "key", 1)},
			{f.charge("zone", "other", 4)},
		})
		want := []struct {
			allowed   bool
			remaining []int64
		}{{true, []int64{4}}, {false, []int64{4}}, {}, {true, []int64{4, 0}}, {false, []int64{4, 0}}, {true, []int64{0}}}
		if len(results) != len(want) {
			f.Fatalf("TakeBatch gave %d results, want %d", len(results), len(want))
		}
		for i, r := range results {
			if i == 2 {
				if !errors.Is(r.Err, window.ErrInvalid) || r.Decisions != nil {
					f.Errorf("result 2 = %+v, want ErrInvalid", r)
				}
				continue
			}
			if r.Err != nil || window.Allowed(r.Decisions) != want[i].allowed || len(r.Decisions) != len(want[i].remaining) {
				f.Errorf("result %d = %+v, want %+v", i, r, want[i])
				continue
			}
			for j, d := range r.Decisions {
				if d.Remaining != want[i].remaining[j] {
					f.Errorf("result %d, decision %d = %+v, want %d remaining", i, j, d, want[i].remaining[j])
				}
			}
		}
		if got := f.store.TakeBatch(f.Context(), nil); len(got) != 0 {
			f.Errorf("TakeBatch of nothing = %v", got)
		}
	})
}

func testPeek(t *testing.T, open Open) {
	eachOfWindows(t, open, func(f *fixture) {
		c := f.charge("zone", "key", 7)
		for range 3 {
			if ds := f.peek(c); !ds[0].Allowed || ds[0].Remaining != 10 || ds[0].RetryAfter != 0 || ds[0].ResetAfter != 0 {
				f.Errorf("Peek = %+v, want 10 remaining", ds[0])
			}
		}
		f.take(c)
		want := window.Decision{
			Limit: 10, Remaining: 3, RetryAfter: 9 * time.Second, ResetAfter: 9 * time.Second,
			EffectiveWindow: 9 * time.Second, At: Start + 1_000,
		}
		f.clock.Add(1_000)
		for range 3 {
			if ds := f.peek(c); ds[0] != want {
				f.Errorf("Peek = %+v, want %+v", ds[0], want)
			}
		}
	})
}

func testSettle(t *testing.T, open Open) {
	eachOfSeconds(t, open, func(f *fixture) {
		c := f.charge("zone", "key", 4)
		first := f.take(c)[0].At
		f.clock.Add(6_000)
		second := f.take(c)[0].At
		f.chargeMore(c, 0)
		f.givesBack(c, second, 0, 2)
		f.givesBack(c, first, 1, 3)
		// No more comes back than was spent then.
		f.givesBack(c, first, 100, 6)
		f.givesBack(c, first, 100, 6)
		f.givesBack(c, second, 2, 8)
		// More is booked above the limit, too, and now.
		f.clock.Add(2_000)
		f.charges(c, 9, 0)
		one := c
		one.Cost = 1
		if d := f.peek(one)[0]; d.Allowed || d.RetryAfter != 8*time.Second {
			f.Errorf("11 of 10 spent: Peek = %+v, want a wait of 8s", d)
		}
		f.clock.Add(10_000)
		f.wantRemaining(c, 10)
	})
}

func testSettleNothing(t *testing.T, open Open) {
	each(t, open, func(f *fixture) {
		c := f.charge("zone", "key", 1)
		f.givesBack(c, Start, 1, 10)
		f.charges(c, 3, 7)
		f.giveBack(c, Start-20_000, 1)
		f.givesBack(c, Start+1, 1, 7)
		for _, units := range []int64{-1 << 63, -1, window.MaxProduct + 1, 1<<63 - 1} {
			if err := f.store.GiveBack(f.Context(), c, Start, units); !errors.Is(err, window.ErrInvalid) {
				f.Errorf("GiveBack(%d) = %v, want ErrInvalid", units, err)
			}
			if err := f.store.ChargeMore(f.Context(), c, units); !errors.Is(err, window.ErrInvalid) {
				f.Errorf("ChargeMore(%d) = %v, want ErrInvalid", units, err)
			}
		}
		f.wantRemaining(c, 7)
	})
}

// testSettleMany gives back more units than a script can name in one call.
func testSettleMany(t *testing.T, open Open) {
	each(t, open, func(f *fixture) {
		c := f.charge("zone", "key", 9_998, per(10_000, 10_000))
		at := f.take(c)[0].At
		f.wantRemaining(c, 2)
		f.givesBack(c, at, 9_997, 9_999)
		f.givesBack(c, at, 1, 10_000)
	})
}

func testReset(t *testing.T, open Open) {
	each(t, open, func(f *fixture) {
		mine, other := f.charge("zone", "key", 10), f.charge("zone", "other", 10)
		f.take(mine, other)
		if err := f.store.Reset(f.Context(), window.Charge{Zone: "zone", Key: "key", Algorithm: f.algo}); err != nil {
			f.Fatal(err)
		}
		f.wantRemaining(mine, 10)
		f.wantRemaining(other, 0)
		f.take(mine)
		f.wantRemaining(mine, 0)
		if err := f.store.Reset(f.Context(), f.charge("zone", "unknown", 1)); err != nil {
			f.Errorf("Reset of nothing: %v", err)
		}
		if err := f.store.Reset(f.Context(), window.Charge{Zone: "zone"}); !errors.Is(err, window.ErrInvalid) {
			f.Errorf("Reset without an algorithm = %v, want ErrInvalid", err)
		}
	})
}

// testClockBack steps the clock back by a day: no client is locked out for longer
// than one window, and nothing is given away.
func testClockBack(t *testing.T, open Open) {
	eachOfWindows(t, open, func(f *fixture) {
		f.clock.Add(24 * 3_600_000)
		c := f.charge("zone", "key", 1)
		for range 10 {
			f.take(c)
			f.clock.Add(10)
		}
		back := Start + 500
		f.clock.Set(back)
		if d := f.peek(c)[0]; d.Allowed || d.Remaining != 0 || d.RetryAfter != 10*time.Second || d.ResetAfter != 10*time.Second {
			f.Errorf("after the step: Peek = %+v, want a wait of 10s", d)
		}
		f.clock.Add(1)
		if d := f.take(c)[0]; d.Allowed || d.RetryAfter != 10*time.Second {
			f.Errorf("after the step: Take = %+v, want a wait of 10s", d)
		}
		f.clock.Add(9_999)
		if d := f.take(c)[0]; d.Allowed || d.RetryAfter != time.Millisecond {
			f.Errorf("a window later, less 1ms: Take = %+v, want a wait of 1ms", d)
		}
		f.clock.Add(1)
		if d := f.take(c)[0]; !d.Allowed || d.Remaining != 9 {
			f.Errorf("a window later: Take = %+v, want 9 remaining", d)
		}
	})
}

func testKeys(t *testing.T, open Open) {
	long := strings.Repeat("k", 100_000)
	names := []string{
		"", "{}", "{", "}", ":", "::", "\x00", "\x00\x00", "\xff\xfe", "{a}b", "#", "a b", "\r\n", "ü", "key", "KEY", "a", "a:", ":a", "a:a",
		long, long + "k", strings.Repeat("k", 64), strings.Repeat("k", 65),
	}
	each(t, open, func(f *fixture) {
		var all []window.Charge
		for _, zone := range names {
			for _, key := range names {
				if zone != "key" && len(zone)+len(key) > 150_000 {
					continue // one of 100 kB is enough
				}
				all = append(all, f.charge(zone, key, 1, per(int64(len(all)%3+1), 60_000)))
			}
		}
		for round := range int64(4) {
			for _, c := range all {
				limit := c.Policies[0].Limit
				if d := f.take(c)[0]; d.Allowed != (round < limit) || d.Remaining != max(0, limit-round-1) {
					f.Fatalf("round %d, zone %.20q, key %.20q: Take = %+v, want a limit of %d", round, c.Zone, c.Key, d, limit)
				}
			}
		}
	})
}

func testInvalid(t *testing.T, open Open) {
	f := newFixture(t, open, window.Zset{})
	good := f.charge("zone", "key", 1)
	with := func(change func(*window.Charge)) window.Charge {
		c := good
		change(&c)
		return c
	}
	policy := func(limit int64, w time.Duration) window.Charge {
		return with(func(c *window.Charge) { c.Policies = []window.Policy{{Limit: limit, Window: w}} })
	}
	slices := func(a window.Slices) window.Charge { return with(func(c *window.Charge) { c.Algorithm = a }) }
	cases := [][]window.Charge{
		0:  {with(func(c *window.Charge) { c.Algorithm = nil })},
		1:  {with(func(c *window.Charge) { c.Cost = -1 })},
		2:  {with(func(c *window.Charge) { c.Policies = nil })},
		3:  {policy(-1, time.Second)},
		4:  {policy(1, 0)},
		5:  {policy(1, -time.Second)},
		6:  {policy(1, time.Microsecond)},
		7:  {policy(1, time.Second+time.Microsecond)},
		8:  {policy(window.MaxProduct, 2*time.Millisecond)},
		9:  {policy(1<<62, time.Hour)},
		10: {with(func(c *window.Charge) { c.Policies = []window.Policy{per(1, 1), per(-1, 1)} })},
		11: {good, good},
		12: {good, with(func(c *window.Charge) { c.Zone = "other" }), with(func(c *window.Charge) { c.Cost = 0 })},
		13: {good, with(func(c *window.Charge) { c.Zone, c.Cost = "other", -1 })},
		14: {slices(window.Slices{Count: -1})},
		15: {slices(window.Slices{Size: -time.Second})},
		16: {slices(window.Slices{Size: time.Microsecond})},
		17: {slices(window.Slices{Size: time.Second, Count: 3})},
		18: {with(func(c *window.Charge) { c.Algorithm = window.Stream{Keep: -time.Second} })},
		19: {with(func(c *window.Charge) { c.Algorithm = window.Stream{Keep: time.Microsecond} })},
		20: {with(func(c *window.Charge) { c.Fields = []string{"user"} })},
		21: {with(func(c *window.Charge) { c.Fields = make([]string, 2*window.MaxFields+2) })},
	}
	gcra := func(a window.GCRA, policies ...window.Policy) window.Charge {
		return with(func(c *window.Charge) { c.Algorithm, c.Policies = a, policies })
	}
	native := window.GCRA{Native: window.NativeAuto}
	packed := func(c window.Charge, expected int64) window.Charge {
		c.Pack = expected
		return c
	}
	cases = append(cases, [][]window.Charge{
		{gcra(window.GCRA{Burst: -1}, per(1, 1_000))},
		{gcra(window.GCRA{Native: 3}, per(1, 1_000))},
		{gcra(window.GCRA{Burst: window.MaxProduct/1_000 + 1}, per(1, 1_000))},
		{gcra(window.GCRA{Burst: 1_000_000}, per(1, 24*3_600_000))},
		{gcra(native, per(0, 1_000))},
		{gcra(native, per(1, 1_500))},
		{gcra(native, per(1_001, 1_000))},
		{gcra(window.GCRA{Burst: 75_000, Native: window.NativeOn}, per(1, 24*3_600_000))},
		{gcra(native, per(1, 1_000), per(2, 2_000))},
		{gcra(native, per(1, 1_000)), good},
		{with(func(c *window.Charge) { c.Pack = 1 })},
		{packed(gcra(window.GCRA{}, per(1, 1_000)), -1)},
		{packed(gcra(native, per(1, 1_000)), 1)},
		{packed(gcra(window.GCRA{}, per(1, 1_000), per(2, 2_000), per(3, 3_000), per(4, 4_000)), 1)},
		{packed(slices(window.Slices{}), 1)},
		{packed(slices(window.Slices{Count: 4}), 1)},
		{packed(slices(window.Slices{Size: time.Minute}), 1)},
		{packed(slices(window.Slices{Count: 1}), -1)},
	}...)
	for i, charges := range cases {
		if _, err := f.store.Take(f.Context(), charges); !errors.Is(err, window.ErrInvalid) || errors.Is(err, window.ErrUnavailable) {
			f.Errorf("case %d: Take = %v, want ErrInvalid", i, err)
		}
		if _, err := f.store.Peek(f.Context(), charges); !errors.Is(err, window.ErrInvalid) {
			f.Errorf("case %d: Peek = %v, want ErrInvalid", i, err)
		}
		if r := f.store.TakeBatch(f.Context(), [][]window.Charge{charges}); !errors.Is(r[0].Err, window.ErrInvalid) {
			f.Errorf("case %d: TakeBatch = %v, want ErrInvalid", i, r[0].Err)
		}
		if len(charges) == 1 {
			if err := f.store.GiveBack(f.Context(), charges[0], Start, 1); !errors.Is(err, window.ErrInvalid) {
				f.Errorf("case %d: GiveBack = %v, want ErrInvalid", i, err)
			}
			if err := f.store.ChargeMore(f.Context(), charges[0], 1); !errors.Is(err, window.ErrInvalid) {
				f.Errorf("case %d: ChargeMore = %v, want ErrInvalid", i, err)
			}
		}
	}
	if err := f.store.ChargeMore(f.Context(), gcra(native, per(1, 1_000)), 1); !errors.Is(err, window.ErrInvalid) {
		f.Errorf("native: ChargeMore = %v, want ErrInvalid", err)
	}
	f.wantRemaining(good, 10)
	if ds := f.take(); len(ds) != 0 {
		f.Errorf("Take of nothing = %v", ds)
	}
	huge := []window.Charge{
		slices(window.Slices{Count: 1<<63 - 1}),
		slices(window.Slices{Size: 1_000_000 * time.Hour}),
		policy(window.MaxProduct, time.Millisecond),
		policy(1, 250*365*24*time.Hour),
		gcra(window.GCRA{}, window.Policy{Limit: 1, Window: 250 * 365 * 24 * time.Hour}),
		gcra(window.GCRA{}, per(window.MaxProduct, 1)),
		gcra(window.GCRA{Burst: window.MaxProduct / 1_000}, per(1_000, 1_000)),
		gcra(window.GCRA{Burst: 1}, per(window.MaxProduct/1_000, 1_000)),
		packed(gcra(window.GCRA{}, per(1, 1_000)), 1<<63-1),
	}
	for i, c := range huge {
		if err := f.store.Reset(f.Context(), c); err != nil {
			f.Fatal(err)
		}
		if d := f.take(c)[0]; !d.Allowed || d.Remaining != c.Policies[0].AtOnce(c.Algorithm)-1 {
			f.Errorf("huge case %d: Take = %+v, want it to pass", i, d)
		}
	}
}
