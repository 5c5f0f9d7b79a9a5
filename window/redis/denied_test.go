package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/windowtest"
)

// watched is a store in the time of a clock whose questions are counted.
type watched struct {
	*testing.T
	*redis.Store
	clock *windowtest.Clock
	asked *atomic.Int64
}

func watch(t *testing.T, o redis.Options) *watched {
	addr, asked := countingProxy(t, server.Addr, "evalsha")
	clock := windowtest.NewClock()
	o.Addresses, o.Now = []string{addr}, clock.Now
	w := &watched{t, newStore(t, o), clock, asked}
	if err := w.Ping(t.Context()); err != nil { // the server has the script now
		t.Fatal(err)
	}
	return w
}

// wantTake takes, and holds whether that passes and how often the server is asked.
func (w *watched) wantTake(what string, allowed bool, asked int64, charges ...window.Charge) []window.Decision {
	w.Helper()
	before := w.asked.Load()
	ds := take(w.T, w.Store, charges...)
	if n := w.asked.Load() - before; window.Allowed(ds) != allowed || n != asked {
		w.Errorf("%s: Take = %+v after %d questions, want allowed %v after %d", what, ds, n, allowed, asked)
	}
	return ds
}

// with returns the charge with other policies or another algorithm.
func with(c window.Charge, change func(*window.Charge)) window.Charge {
	c.Policies = slices.Clone(c.Policies)
	change(&c)
	return c
}

// TestDeniedFlood floods a denied key for ten seconds: the server gets no command but
// one question a second, and every answer is that of the store in memory.
func TestDeniedFlood(t *testing.T) {
	own, clock := redistest.Start(t), windowtest.NewClock()
	s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now}), own.Client(t)
	m := openMemory(t, clock)
	commands := regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`)
	for _, algo := range algorithms {
		one := charge("zone", "key", 1, time.Hour)
		one.Algorithm = suited(algo, time.Hour)
		for range 2 {
			take(t, s, one)
			if _, err := m.Take(t.Context(), []window.Charge{one}); err != nil {
				t.Fatal(err)
			}
		}
		c.ConfigResetStat(t.Context())
		for step := range 1_000 {
			clock.Add(10)
			want, _ := m.Take(t.Context(), []window.Charge{one})
			for range 3 {
				if got := take(t, s, one); !slices.Equal(got, want) {
					t.Fatalf("%s, step %d: Take = %+v, want %+v", algo.Name(), step, got, want)
				}
			}
			for _, r := range s.TakeBatch(t.Context(), [][]window.Charge{{one}, {one}}) {
				if r.Err != nil || !slices.Equal(r.Decisions, want) {
					t.Fatalf("%s, step %d: TakeBatch = %+v, want %+v", algo.Name(), step, r, want)
				}
			}
		}
		for _, m := range commands.FindAllStringSubmatch(c.Info(t.Context(), "commandstats").Val(), -1) {
			want := ""
			switch m[1] {
			case "evalsha":
				want = "10"
			case "config|resetstat":
				want = "1"
			default: // what the script does
				continue
			}
			if m[2] != want {
				t.Errorf("%s: %s calls of %s, want %s", algo.Name(), m[2], m[1], want)
			}
		}
	}
}

// TestDeniedIsOneRequest denies a request, and makes others that differ from it in
// one thing.
func TestDeniedIsOneRequest(t *testing.T) {
	one := charge("zone", "key", 5, time.Minute)
	one.Algorithm, one.Cost = window.Slices{}, 6
	two := with(one, func(c *window.Charge) { c.Zone = "other" })
	another := func(change func(c *window.Charge)) []window.Charge { return []window.Charge{with(one, change), two} }
	algo := func(a window.Algorithm) []window.Charge {
		return another(func(c *window.Charge) { c.Algorithm = a })
	}
	requests := map[string][]window.Charge{
		"itself":             {one, two},
		"alone":              {one},
		"the other way":      {two, one},
		"zone":               another(func(c *window.Charge) { c.Zone = "zon" }),
		"zone and key":       another(func(c *window.Charge) { c.Zone, c.Key = "zon", "ekey" }),
		"zone, key and a 0":  another(func(c *window.Charge) { c.Zone, c.Key = "zone\x00", "key" }),
		"key":                another(func(c *window.Charge) { c.Key = "Key" }),
		"a long key":         another(func(c *window.Charge) { c.Key = string(make([]byte, 1_000)) }),
		"a longer key":       another(func(c *window.Charge) { c.Key = string(make([]byte, 1_001)) }),
		"cost":               another(func(c *window.Charge) { c.Cost++ }),
		"limit":              another(func(c *window.Charge) { c.Policies[0].Limit-- }),
		"window":             another(func(c *window.Charge) { c.Policies[0].Window++; c.Policies[0].Window = time.Hour }),
		"another policy":     another(func(c *window.Charge) { c.Policies = append(c.Policies, c.Policies[0]) }),
		"count":              algo(window.Slices{Count: 61}),
		"size":               algo(window.Slices{Size: time.Second}),
		"weighted":           algo(window.Slices{Weighted: true}),
		"min and max":        algo(window.Slices{Min: time.Second, Max: time.Minute}),
		"layers":             algo(window.Layers{Coarse: 10 * time.Second, Fine: time.Second}),
		"other layers":       algo(window.Layers{Coarse: 10 * time.Second, Fine: 2 * time.Second}),
		"zset":               algo(window.Zset{}),
		"log":                algo(window.Log{}),
		"stream":             algo(window.Stream{}),
		"stream, kept":       algo(window.Stream{Keep: time.Hour}),
		"gcra":               algo(window.GCRA{}),
		"gcra, burst":        algo(window.GCRA{Burst: 5}),
		"gcra, other burst":  algo(window.GCRA{Burst: 4}),
		"gcra alone":         algo(window.GCRA{})[:1],
		"gcra alone, native": algo(window.GCRA{Native: window.NativeAuto})[:1],
	}
	for first := range requests {
		w := watch(t, redis.Options{})
		for name, charges := range requests {
			if name != first {
				redis.Remember(w.Store, charges, make([]window.Decision, window.CountPolicies(charges)))
			}
		}
		w.wantTake(first, false, 1, requests[first]...)
	}
	w := watch(t, redis.Options{})
	for name, charges := range requests {
		w.wantTake(name, false, 1, charges...)
		charges[0].Fields = []string{"name", "value"}
		w.wantTake(name+" with fields", false, 0, charges...)
		charges[0].Fields = []string{"name"}
		if _, err := w.Take(t.Context(), charges); !errors.Is(err, window.ErrInvalid) {
			t.Errorf("%s: Take of half a field = %v, want ErrInvalid", name, err)
		}
	}
}

// TestDeniedOthersPass has requests pass on a counter on which another is denied.
func TestDeniedOthersPass(t *testing.T) {
	for _, algo := range algorithms {
		w := watch(t, redis.Options{})
		one := charge("zone", "key", 10, time.Hour)
		one.Algorithm = suited(algo, time.Hour)
		cost := func(n int64) window.Charge { return with(one, func(c *window.Charge) { c.Cost = n }) }
		free := charge("free", "key", 10, time.Hour)
		w.wantTake("cost 6", true, 1, cost(6))
		w.wantTake("cost 5", false, 1, cost(5))
		w.wantTake("cost 5 again", false, 0, cost(5))
		w.wantTake("cost 5 beside another zone", false, 1, free, cost(5))
		w.wantTake("cost 4", true, 1, cost(4))
		w.wantTake("cost 0", true, 1, cost(0))
		w.wantTake("cost 1", false, 1, cost(1))
		w.wantTake("cost 1 again", false, 0, cost(1))
		raised := with(one, func(c *window.Charge) { c.Policies[0].Limit = 100_000 })
		w.wantTake("a raised limit", true, 1, raised)
		before := w.asked.Load()
		for range 3 {
			if ds, err := w.Peek(t.Context(), []window.Charge{cost(1)}); err != nil || window.Allowed(ds) {
				t.Errorf("%s: Peek = %+v, %v, want a denial", algo.Name(), ds, err)
			}
		}
		if n := w.asked.Load() - before; n != 3 {
			t.Errorf("%s: %d questions for 3 times Peek", algo.Name(), n)
		}
	}
}

// TestDeniedWalks asks for the same few requests again and again, in steps of time
// that are short beside a second, or end when a denial does. Windows are longer
// than it takes, for keys expire in real time.
func TestDeniedWalks(t *testing.T) {
	for _, algo := range append(algorithms, window.Slices{Size: 100 * time.Millisecond, Weighted: true}, window.Slices{Min: 50 * time.Millisecond, Max: time.Second}) {
		t.Run(fmt.Sprintf("%T%+[1]v", algo), func(t *testing.T) {
			t.Parallel()
			clock := windowtest.NewClock()
			s := openRemembering(t, clock).(*windowtest.Remembering)
			algo := suited(algo, 5*time.Second)
			a, _ := algo.(window.Slices)
			passed := 0
			for walk := range 20 {
				r := rand.New(rand.NewPCG(3, uint64(walk)))
				var zones [2]window.Charge
				for i := range zones {
					zones[i] = charge(fmt.Sprintf("walk%d-%d", walk, i), "key", 1+r.Int64N(10), time.Duration(60_000+r.Int64N(5_000))*time.Millisecond)
					if zones[i].Algorithm = algo; r.IntN(2) == 0 && !a.Weighted {
						zones[i].Policies = append(zones[i].Policies, window.Policy{Limit: 1 + r.Int64N(10), Window: time.Duration(30_000+r.Int64N(40_000)) * time.Millisecond})
					}
				}
				for range 300 {
					charges := slices.Clone(zones[r.IntN(2):])
					for i := range charges {
						charges[i].Cost = 1 + r.Int64N(2)*r.Int64N(4)
					}
					ds, err := s.Take(t.Context(), charges)
					if err != nil {
						t.Fatal(err)
					}
					switch {
					case window.Allowed(ds):
						passed++
						if r.IntN(10) == 0 {
							err = s.Settle(t.Context(), charges[0], ds[0].At, r.Int64N(5)-3)
						}
					case r.IntN(100) == 0:
						err = s.Reset(t.Context(), charges[0])
					case r.IntN(4) == 0:
						if retry := ds[r.IntN(len(ds))].RetryAfter; retry < window.Never {
							clock.Add(max(0, retry.Milliseconds()-r.Int64N(2)))
						}
					default:
						clock.Add(r.Int64N(80))
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			if s.Checked < 1_000 || passed < 500 || s.Late > 0 {
				t.Errorf("%d denials may have been remembered, %d passed, %d were late", s.Checked, passed, s.Late)
			}
		})
	}
}

// TestDeniedUntilThereIsRoom resets a counter and gives back to it: this store
// sees it at once, another one within a second.
func TestDeniedUntilThereIsRoom(t *testing.T) {
	for _, algo := range algorithms {
		full, free := charge("full", "key", 1, time.Hour), charge("free", "key", 10, time.Hour)
		full.Algorithm, free.Algorithm = suited(algo, time.Hour), suited(algo, time.Hour)
		for name, room := range map[string]func(s *watched, c window.Charge, at int64) error{
			"Reset":  func(s *watched, c window.Charge, _ int64) error { return s.Reset(s.Context(), c) },
			"Settle": func(s *watched, c window.Charge, at int64) error { return s.Settle(s.Context(), c, at, -1) },
		} {
			name = algo.Name() + ", " + name
			prefix := "room" + strconv.FormatInt(prefixes.Add(1), 10)
			w, other := watch(t, redis.Options{Prefix: prefix}), watch(t, redis.Options{Prefix: prefix})
			free := redis.Apart(w.Store, free, full)
			at := w.wantTake(name, true, 1, full)[0].At
			for _, s := range []*watched{w, other} {
				s.wantTake(name+": full", false, 1, full)
				s.wantTake(name+": free and full", false, 1, free, full)
			}
			if err := errors.Join(room(w, free, at), w.Settle(t.Context(), full, at, 1)); err != nil {
				t.Error(err)
			}
			w.wantTake(name+": room where there was", false, 0, free, full)
			w.wantTake(name+": more of what is full", false, 0, full)
			if err := errors.Join(room(w, full, at), w.Settle(t.Context(), full, at, -1)); err != nil {
				t.Error(err)
			}
			if algo.Name() == "gcra" && name == "gcra, Settle" {
				continue // gives back no more than cannot have leaked
			}
			for _, s := range []*watched{w, other} {
				s.clock.Add(999)
			}
			other.wantTake(name+": the other after 999 ms", false, 0, full)
			other.wantTake(name+": the other after 999 ms", false, 0, free, full)
			w.wantTake(name+": this one", true, 1, free, full)
			if err := w.Reset(t.Context(), full); err != nil {
				t.Error(err)
			}
			other.clock.Add(1)
			other.wantTake(name+": the other after a second", true, 1, free, full)
		}
	}
}

// TestDeniedClockStepsBack holds that a denial is not in force before it was made.
func TestDeniedClockStepsBack(t *testing.T) {
	w := watch(t, redis.Options{})
	one := charge("zone", "key", 0, time.Hour)
	w.wantTake("at first", false, 1, one)
	w.clock.Add(-1)
	w.wantTake("a millisecond before", false, 1, one)
	w.clock.Add(999)
	w.wantTake("999 ms after", false, 0, one)
	w.clock.Add(1)
	w.wantTake("a second after", false, 1, one)
}

// TestDeniedAnswerTakesTime has answers that take 300 ms: a denial is over when its
// time from the question has passed, and says how long it lasts from the answer.
func TestDeniedAnswerTakesTime(t *testing.T) {
	clock := windowtest.NewClock()
	var asked, retry atomic.Int64
	addr := fakeServer(t, func([]string) string {
		asked.Add(1)
		clock.Add(200)
		at := clock.Now()
		clock.Add(100)
		return integers(at, 0, 0, retry.Load(), 9_000, 10)
	})
	s := newStore(t, redis.Options{Addresses: []string{addr}, Now: clock.Now})
	one := charge("zone", "key", 1, 10*time.Second)
	for _, c := range []struct {
		retry, after, asked int64 // ms after the answer
		want                window.Decision
	}{
		{500, 0, 0, window.Decision{RetryAfter: 500, ResetAfter: 9_000, EffectiveWindow: 10}},
		{500, 199, 0, window.Decision{RetryAfter: 301, ResetAfter: 8_801, EffectiveWindow: 1}},
		{500, 200, 1, window.Decision{}},
		{5_000, 699, 0, window.Decision{RetryAfter: 4_301, ResetAfter: 8_301, EffectiveWindow: 1}},
		{5_000, 700, 1, window.Decision{}},
		{-1, 699, 0, window.Decision{RetryAfter: -1, ResetAfter: 8_301, EffectiveWindow: 1}},
		{-1, 700, 1, window.Decision{}},
		{301, 0, 0, window.Decision{RetryAfter: 301, ResetAfter: 9_000, EffectiveWindow: 10}},
		{301, 1, 1, window.Decision{}},
		{300, 0, 1, window.Decision{}},
		{1, 0, 1, window.Decision{}},
	} {
		clock.Add(1_000_000)
		retry.Store(c.retry)
		first := take(t, s, one)[0]
		if n, _ := redis.Remembered(s); (n > 0) != (c.retry < 0 || c.retry > 300) {
			t.Errorf("%+v: %d denials are remembered", c, n)
		}
		clock.Add(c.after)
		asked.Store(0)
		got := take(t, s, one)[0]
		if n := asked.Load(); n != c.asked {
			t.Errorf("%+v: %d questions", c, n)
		}
		if c.asked > 0 {
			continue
		}
		want := c.want
		want.Limit, want.At = 1, first.At+c.after
		want.ResetAfter, want.EffectiveWindow = want.ResetAfter*time.Millisecond, want.EffectiveWindow*time.Millisecond
		if want.RetryAfter *= time.Millisecond; want.RetryAfter < 0 {
			want.RetryAfter = window.Never
		}
		if got != want {
			t.Errorf("%+v: Take = %+v, want %+v", c, got, want)
		}
	}
}

// TestDeniedWhileReset has a reset come after the decision and before its answer.
func TestDeniedWhileReset(t *testing.T) {
	var s *redis.Store
	var asked atomic.Int64
	one := charge("zone", "key", 1, time.Hour)
	addr := fakeServer(t, func(args []string) string {
		if args[5] == "take" {
			asked.Add(1)
			if err := s.Reset(t.Context(), one); err != nil {
				t.Error(err)
			}
		}
		return integers(windowtest.Start, 0, 0, 9_000, 9_000, 9_000)
	})
	s = newStore(t, redis.Options{Addresses: []string{addr}, Now: windowtest.NewClock().Now})
	for range 3 {
		take(t, s, one)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("%d questions, want 3: what was decided before the reset is not true after it", n)
	}
}

// TestDeniedInRealTime floods a key on the clock of this process: times are whole
// milliseconds, and tell of the same moment throughout.
func TestDeniedInRealTime(t *testing.T) {
	s := newStore(t, redis.Options{})
	one := charge("zone", "key", 1, time.Hour)
	first := take(t, s, one)[0].At
	at := int64(0)
	for n := 0; n < 1_000 || at < first+20; n++ {
		d := take(t, s, one)[0]
		if d.Allowed || d.RetryAfter%time.Millisecond != 0 || d.At+d.RetryAfter.Milliseconds() != first+time.Hour.Milliseconds() || d.RetryAfter != d.ResetAfter {
			t.Fatalf("Take = %+v, want an hour after %d", d, first)
		}
		at = max(at, d.At)
	}
	if _, err := s.Peek(t.Context(), []window.Charge{one}); err != nil {
		t.Error(err)
	}
}

// TestDeniedErrors holds that an outage is not remembered, and that what is denied
// stays so in one.
func TestDeniedErrors(t *testing.T) {
	own, clock := redistest.Start(t), windowtest.NewClock()
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now})
	full, other := charge("full", "key", 0, time.Hour), charge("other", "key", 0, time.Hour)
	take(t, s, full)
	if err := errors.Join(s.Ping(t.Context()), s.Ping(t.Context())); err != nil {
		t.Error(err)
	}
	own.Kill()
	if d := take(t, s, full)[0]; d.Allowed {
		t.Errorf("Take in an outage = %+v, want a denial", d)
	}
	results := s.TakeBatch(t.Context(), [][]window.Charge{{other}, {full}, {other}})
	for i, r := range results {
		if unavailable := errors.Is(r.Err, window.ErrUnavailable); unavailable != (i != 1) || i == 1 && r.Decisions[0].Allowed {
			t.Errorf("TakeBatch in an outage: result %d = %+v", i, r)
		}
	}
	if err := s.Ping(t.Context()); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("Ping in an outage = %v, want ErrUnavailable", err)
	}
	clock.Add(1_000)
	if _, err := s.Take(t.Context(), []window.Charge{full}); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("Take in an outage, a second later = %v, want ErrUnavailable", err)
	}
	own.Restart(t)
	eventually(t, patience, "a denial after the outage", func() bool {
		ds, err := s.Take(t.Context(), []window.Charge{other})
		return err == nil && !ds[0].Allowed
	})
}

// TestDeniedNative has CL.THROTTLE answer in whole seconds, up to two late.
func TestDeniedNative(t *testing.T) {
	clock := windowtest.NewClock()
	var asked, retry atomic.Int64
	s := newStore(t, redis.Options{Now: clock.Now, Addresses: []string{fakeServer(t, func([]string) string {
		asked.Add(1)
		return integers(1, 10, 0, retry.Load(), 60)
	})}})
	one := nativeCharge("key", 1, window.GCRA{}, window.Policy{Limit: 10, Window: time.Minute})
	for _, c := range []struct{ retry, after, asked int64 }{{1, 0, 1}, {2, 0, 1}, {3, 0, 0}, {3, 999, 0}, {3, 1_000, 1}, {30, 999, 0}, {30, 1_000, 1}} {
		clock.Add(1_000_000)
		retry.Store(c.retry)
		take(t, s, one)
		clock.Add(c.after)
		asked.Store(0)
		d := take(t, s, one)[0]
		if n := asked.Load(); n != c.asked || d.Allowed || d.At != 0 {
			t.Errorf("%+v: Take = %+v after %d questions", c, d, n)
		}
		if want := c.retry*1_000 - c.after; c.asked == 0 && d.RetryAfter.Milliseconds() != want {
			t.Errorf("%+v: Take = %+v, want %d ms to wait", c, d, want)
		}
	}
}

// TestDeniedBatch mixes requests that are remembered with others.
func TestDeniedBatch(t *testing.T) {
	w := watch(t, redis.Options{})
	r := rand.New(rand.NewPCG(1, 2))
	remembered := make(map[int64]bool)
	want := w.asked.Load()
	for range 50 {
		var requests [][]window.Charge
		for range r.IntN(20) {
			limit := r.Int64N(40)
			one := charge("zone", fmt.Sprint(limit), limit, time.Hour)
			if one.Cost = 100; r.IntN(4) == 0 {
				one.Cost = 0
			}
			if requests = append(requests, []window.Charge{one}); one.Cost == 0 || !remembered[limit] {
				want++
			}
		}
		results := w.TakeBatch(t.Context(), requests)
		if len(results) != len(requests) {
			t.Fatalf("%d results, want %d", len(results), len(requests))
		}
		for i, res := range results {
			c := requests[i][0]
			if res.Err != nil || res.Decisions[0].Limit != c.Policies[0].Limit || res.Decisions[0].Allowed != (c.Cost == 0) {
				t.Errorf("result %d = %+v of %+v", i, res, c)
			}
			if c.Cost > 0 {
				remembered[c.Policies[0].Limit] = true
			}
		}
	}
	eventually(t, patience, "as many questions as that", func() bool { return w.asked.Load() >= want })
	if n := w.asked.Load(); n > want {
		t.Errorf("%d questions, want %d", n, want)
	}
}

// TestDeniedBounds remembers more than there is room for.
func TestDeniedBounds(t *testing.T) {
	clock := windowtest.NewClock()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, policies := range []int{1, 20} {
		before := heap()
		s := newStore(t, redis.Options{Now: clock.Now})
		deny := func(n int) {
			one := charge("zone", fmt.Sprintf("a key of some length, %d", n), 0, time.Hour)
			one.Policies = slices.Repeat(one.Policies, policies)
			ds := slices.Repeat([]window.Decision{{RetryAfter: window.Never, At: clock.Now()}}, policies)
			redis.Remember(s, []window.Charge{one}, ds)
		}
		for n := range 200_000 {
			deny(n)
		}
		n, bytes := redis.Remembered(s)
		took := heap() - before
		t.Logf("%d policies: %d denials, %d bytes, %d on the heap", policies, n, bytes, took)
		if bytes > redis.DenialBytes || bytes < redis.DenialBytes*9/10 {
			t.Errorf("%d policies: %d bytes, want nearly %d", policies, bytes, redis.DenialBytes)
		}
		if took > redis.DenialBytes {
			t.Errorf("%d policies: %d bytes on the heap, want %d at most", policies, took, redis.DenialBytes)
		}
		clock.Add(1_000)
		for i := range n {
			deny(i % 1_000)
		}
		if n, _ := redis.Remembered(s); n > 2_000 {
			t.Errorf("%d policies: %d denials, most of which are over", policies, n)
		}
		clock.Add(1_000)
		for i := range 100 {
			deny(i)
			deny(i)
		}
		runtime.KeepAlive(s)
	}
}

// TestDeniedAccounts finds every denial over, after which nothing is left to count.
func TestDeniedAccounts(t *testing.T) {
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Now: clock.Now})
	for key := range 1_000 {
		take(t, s, charge("zone", strconv.Itoa(key%300), 0, time.Hour))
	}
	if n, bytes := redis.Remembered(s); n != 300 || bytes < 300*200 {
		t.Errorf("%d denials of %d bytes, want 300", n, bytes)
	}
	_, before := redis.Remembered(s)
	for key := range 300 { // as if they had been asked for twice at once
		redis.Remember(s, []window.Charge{charge("zone", strconv.Itoa(key), 0, time.Hour)}, []window.Decision{{RetryAfter: window.Never, At: clock.Now()}})
	}
	if n, bytes := redis.Remembered(s); n != 300 || bytes != before {
		t.Errorf("%d denials of %d bytes, want 300 of %d", n, bytes, before)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	clock.Add(1_000)
	for key := range 300 {
		_, _ = s.Take(t.Context(), []window.Charge{charge("zone", strconv.Itoa(key), 0, time.Hour)})
	}
	if n, bytes := redis.Remembered(s); n != 0 || bytes != 0 {
		t.Errorf("%d denials of %d bytes when all are over", n, bytes)
	}
}

// TestDeniedConcurrent resets keys and gives back to them while others are denied
// there: afterwards, a request passes if and only if there is room.
func TestDeniedConcurrent(t *testing.T) {
	s := newStore(t, redis.Options{})
	parallel(4, func(i int) {
		one := charge("zone", strconv.Itoa(i), 1, time.Hour)
		for round := range 100 {
			var admitted atomic.Int64
			parallel(4, func(j int) {
				for range 3 {
					switch ds, err := s.Take(t.Context(), []window.Charge{one}); {
					case err != nil:
						t.Error(err)
					case ds[0].Allowed:
						admitted.Store(ds[0].At)
					}
				}
				var err error
				switch {
				case j > 0:
				case round%2 == 0:
					err = s.Reset(t.Context(), one)
				default:
					err = s.Settle(t.Context(), one, admitted.Load(), -1)
				}
				if err != nil {
					t.Error(err)
				}
			})
			want, err := s.Peek(t.Context(), []window.Charge{one})
			if err != nil {
				t.Error(err)
				return
			}
			if got := take(t, s, one); got[0].Allowed != want[0].Allowed {
				t.Errorf("key %d, round %d: Take = %+v, where Peek is %+v", i, round, got, want)
			}
			if err := s.Reset(t.Context(), one); err != nil {
				t.Error(err)
			}
		}
	})
}

// testClusterDenied denies a request for one of its counters: what the others get
// back leaves the denial in force, but not those that they had without it.
func testClusterDenied(t *testing.T, nodes []*redistest.Server) {
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Addresses: []string{nodes[0].Addr}, Cluster: true, Now: clock.Now})
	calls := func() (n int) {
		for _, node := range nodes {
			var here int
			_, _ = fmt.Sscanf(node.Client(t).InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_evalsha"), "calls=%d,", &here)
			n += here
		}
		return n
	}
	full := charge("full", "key", 0, time.Hour)
	for i := range 10 {
		free := redis.Apart(s, charge("free", strconv.Itoa(i), 1, time.Hour), full)
		redis.Remember(s, []window.Charge{free}, []window.Decision{{RetryAfter: time.Hour, At: clock.Now()}})
		if window.Allowed(take(t, s, free)) {
			t.Fatal("a remembered denial is not in force")
		}
		ds := take(t, s, free, full)
		before := calls()
		for range 20 {
			if got := take(t, s, free, full); !slices.Equal(got, ds) || window.Allowed(got) {
				t.Errorf("Take = %+v, want %+v", got, ds)
			}
		}
		if n := calls() - before; n != 0 {
			t.Errorf("%d questions for a request that is known to be denied", n)
		}
		if ds := take(t, s, free); !window.Allowed(ds) {
			t.Errorf("Take after units came back = %+v, want it to pass", ds)
		}
	}
}

// TestDeniedAllocations holds that a remembered denial costs its decisions.
func TestDeniedAllocations(t *testing.T) {
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Now: clock.Now})
	for _, algo := range append(algorithms, window.Slices{Min: time.Second, Max: time.Minute}, window.GCRA{Burst: 3}) {
		one := charge("zone", "a key of some length", 0, time.Hour)
		one.Algorithm = suited(algo, time.Hour)
		charges := []window.Charge{one}
		take(t, s, one)
		if n := testing.AllocsPerRun(100, func() { _, _ = s.Take(t.Context(), charges) }); n > 1 {
			t.Errorf("%s: %.0f allocations, want 1", algo.Name(), n)
		}
	}
}

// BenchmarkDenied takes where a denial is remembered.
func BenchmarkDenied(b *testing.B) {
	clock := windowtest.NewClock()
	s := redis.New(redis.Options{Now: clock.Now, Addresses: []string{server.Addr}, Prefix: "bench", Timeout: patience})
	defer func() { _ = s.Close() }()
	m := memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})
	defer func() { _ = m.Close() }()
	for _, store := range []window.Store{s, m} {
		for _, algo := range algorithms {
			one := charge("zone", "192.0.2.1", 0, time.Hour)
			one.Algorithm = suited(algo, time.Hour)
			charges := []window.Charge{one}
			b.Run(fmt.Sprintf("%T/%s", store, algo.Name()), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if ds, err := store.Take(b.Context(), charges); err != nil || ds[0].Allowed {
						b.Fatal(ds, err)
					}
				}
			})
		}
	}
}
