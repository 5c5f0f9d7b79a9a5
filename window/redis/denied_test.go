package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// watched is a store in the time of a clock whose questions are counted.
type watched struct {
	*testing.T
	*redis.Store
	clock *windowtest.Clock
	asked *atomic.Int64
}

func watch(t *testing.T, o redis.Options) *watched { return watchCounting(t, o, calls("evalsha")) }

func watchCounting(t *testing.T, o redis.Options, counts func(args []string) int64) *watched {
	addr, asked := countingProxy(t, server.Addr, counts)
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
			var want string
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

// TestDeniedSmallerLimits changes limits while denials are remembered, as the load does: one
// denies under every smaller limit without asking the server, and under no larger one.
func TestDeniedSmallerLimits(t *testing.T) {
	for _, algo := range algorithms {
		if algo.Name() == "gcra" {
			continue
		}
		w := watch(t, redis.Options{})
		m := openMemory(t, w.clock)
		limit := func(n int64) window.Charge {
			one := charge("zone", "key", n, 10*time.Second)
			one.Algorithm = suited(algo, 10*time.Second)
			return one
		}
		for range 10 {
			w.wantTake("room", true, 1, limit(10))
			if _, err := m.Take(t.Context(), []window.Charge{limit(10)}); err != nil {
				t.Fatal(err)
			}
			w.clock.Add(100)
		}
		w.wantTake("none left", false, 1, limit(10))
		for _, n := range []int64{10, 9, 3, 1, 0, 7} {
			got := w.wantTake(fmt.Sprint("limit ", n), false, 0, limit(n))[0]
			truth, err := m.Peek(t.Context(), []window.Charge{limit(n)})
			if err != nil {
				t.Fatal(err)
			}
			want := truth[0]
			if got.Limit != n || got.Remaining != 0 || got.RetryAfter < want.RetryAfter || n == 0 && got.RetryAfter != window.Never || n > 0 && got.RetryAfter > 11*time.Second {
				t.Errorf("%s, limit %d: Take = %+v, want no earlier than %+v", algo.Name(), n, got, want)
			}
		}
		w.wantTake("a larger limit", true, 1, limit(11))
		w.wantTake("the smaller one again", false, 0, limit(10))
		w.wantTake("none left of the larger one", false, 1, limit(11))
		w.wantTake("the smaller one by the denial of the larger", false, 0, limit(5))
		w.wantTake("a larger one still", true, 1, limit(20))
		// Other windows, and more limits, are other charges.
		w.wantTake("another window", false, 1, with(limit(5), func(c *window.Charge) {
			c.Policies[0].Window = 20 * time.Second
			c.Algorithm = suited(algo, 20*time.Second)
		}))
	}
	// One of two limits may be larger.
	w := watch(t, redis.Options{})
	two := func(short, long int64) window.Charge {
		return with(charge("two", "key", short, 10*time.Second), func(c *window.Charge) {
			c.Policies = append(c.Policies, window.Policy{Limit: long, Window: time.Minute})
		})
	}
	w.wantTake("room", true, 1, two(1, 5))
	w.wantTake("none left", false, 1, two(1, 5))
	ds := w.wantTake("both smaller", false, 0, two(0, 1))
	if ds[0].RetryAfter != window.Never || ds[1].Allowed || ds[1].Remaining != 0 || ds[1].RetryAfter < 59*time.Second {
		t.Errorf("Take = %+v, want both to deny, one for good", ds)
	}
	if ds = w.wantTake("one smaller", false, 0, two(1, 4)); !ds[1].Allowed || ds[1].Remaining != 3 {
		t.Errorf("Take = %+v, want room in the second", ds)
	}
	w.wantTake("one larger", false, 1, two(0, 6))
	// What is remembered stays true when the caller changes its charge.
	mine := charge("mine", "key", 1, time.Hour)
	w.wantTake("room", true, 1, mine)
	w.wantTake("none left", false, 1, mine)
	mine.Policies[0].Limit = 2
	w.wantTake("another limit in the same memory", true, 1, mine)
}

// TestDeniedManyPaths lets a denied client ask for ever new keys in another zone: the
// server hears of it once a second, and the other zone is not charged.
func TestDeniedManyPaths(t *testing.T) {
	for _, algo := range algorithms {
		w := watch(t, redis.Options{})
		full := charge("per_client", "key", 1, time.Hour)
		full.Algorithm = suited(algo, time.Hour)
		w.wantTake("the one that passes", true, 1, full)
		before := w.asked.Load()
		for i := range 1_000 {
			path := charge("path", fmt.Sprint("/", i), 10, time.Minute)
			path.Algorithm = suited(algo, time.Minute)
			ds := take(t, w.Store, path, full)
			if window.Allowed(ds) || !ds[0].Allowed || ds[0].Remaining != 10 || ds[1].Remaining != 0 {
				t.Fatalf("%s, path %d: Take = %+v, want a denial of the client, and all that the path has", algo.Name(), i, ds)
			}
			if i%100 == 0 { // what is said without the server is what it says
				want, err := w.Peek(t.Context(), []window.Charge{path, full})
				if err != nil || !slices.Equal(ds, want) {
					t.Errorf("%s, path %d: Take = %+v, want %+v (%v)", algo.Name(), i, ds, want, err)
				}
				before++
			}
			w.clock.Add(1)
		}
		if n := w.asked.Load() - before; n > 5 {
			t.Errorf("%s: %d questions for 1,000 denials, want 5 at most", algo.Name(), n)
		}
	}
}

// TestDeniedOthersPass makes requests pass on a counter on which another is denied.
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
		w.wantTake("cost 5 beside another zone", false, 0, free, cost(5))
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
		half := with(cost(1), func(c *window.Charge) { c.Fields = []string{"name"} })
		if _, err := w.Take(t.Context(), []window.Charge{half}); !errors.Is(err, window.ErrInvalid) {
			t.Errorf("%s: Take of half a field = %v, want ErrInvalid", algo.Name(), err)
		}
	}
}

// TestDeniedUntilThereIsRoom resets a counter and gives back to it: this store
// sees it at once, another one within a second.
func TestDeniedUntilThereIsRoom(t *testing.T) {
	for _, algo := range algorithms {
		full, free := charge("full", "key", 1, time.Hour), charge("free", "key", 10, time.Hour)
		full.Algorithm, free.Algorithm = suited(algo, time.Hour), suited(algo, time.Hour)
		for name, room := range map[string]func(s *watched, c window.Charge, at int64) error{
			"Reset":    func(s *watched, c window.Charge, _ int64) error { return s.Reset(s.Context(), c) },
			"GiveBack": func(s *watched, c window.Charge, at int64) error { return s.GiveBack(s.Context(), c, at, 1) },
		} {
			name = algo.Name() + ", " + name
			prefix := freshPrefix("room")
			w, other := watch(t, redis.Options{Prefix: prefix}), watch(t, redis.Options{Prefix: prefix})
			free := apart(w.Store, free, full)
			at := w.wantTake(name, true, 1, full)[0].At
			for _, s := range []*watched{w, other} {
				s.wantTake(name+": full", false, 1, full)
				s.wantTake(name+": free and full", false, 0, free, full)
			}
			if err := errors.Join(room(w, free, at), w.ChargeMore(t.Context(), full, 1)); err != nil {
				t.Error(err)
			}
			w.wantTake(name+": room where there was", false, 0, free, full)
			w.wantTake(name+": more of what is full", false, 0, full)
			if err := errors.Join(room(w, full, at), w.GiveBack(t.Context(), full, at, 1)); err != nil {
				t.Error(err)
			}
			if algo.Name() == "gcra" && name == "gcra, GiveBack" {
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

// TestDeniedBatch mixes requests that are remembered with others.
func TestDeniedBatch(t *testing.T) {
	w := watchCounting(t, redis.Options{}, chargesAsked)
	r := rand.New(rand.NewPCG(1, 2))
	remembered := make(map[int64]bool)
	want := w.asked.Load()
	for range 50 {
		var requests [][]window.Charge
		for range r.IntN(20) {
			limit := r.Int64N(40)
			one := charge("zone", fmt.Sprint(limit), limit, time.Hour)
			if one.Cost = 41; r.IntN(4) == 0 {
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
	if n := w.asked.Load(); n != want {
		t.Errorf("the server was asked about %d charges, want %d", n, want)
	}
}

// testClusterDenied denies a request for one of its counters: what the others get
// back leaves the denial in force.
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
		full.Key = "key" + strconv.Itoa(i)
		free := apart(s, charge("free", strconv.Itoa(i), 1, time.Hour), full)
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
