package redis_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// Bounds of one call of the script: of the commands that it calls, and of the time that it
// takes. On a busy machine some take longer, one of a hundred at most.
const (
	mostCommands = 250
	mostTime     = 5 * time.Millisecond
)

// work is a large counter, alone on a server.
type work struct {
	*testing.T
	server *goredis.Client
	store  *redis.Store
	clock  *windowtest.Clock
	one    window.Charge
	spent  []int64 // times of units

	commands int // most of a call
	times    []time.Duration
	slow     []string // calls
}

// newWork spends the charge's cost n times, gap ms apart.
func newWork(t *testing.T, one window.Charge, n int, gap int64) *work {
	own := redistest.Start(t)
	w := &work{T: t, server: own.Client(t), clock: windowtest.NewClock(), one: one}
	now := func() int64 { w.clock.Add(gap); return w.clock.Now() }
	fill := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: now, Prefix: "work", Timeout: time.Minute})
	batch := make([][]window.Charge, 500)
	for i := range batch {
		batch[i] = []window.Charge{one}
	}
	for done := 0; done < n; done += len(batch) {
		for _, r := range fill.TakeEach(t.Context(), batch) {
			if r.Err != nil || !window.Allowed(r.Decisions) {
				t.Fatalf("TakeEach: %+v", r)
			}
			w.spent = append(w.spent, r.Decisions[0].At)
		}
	}
	w.store = redis.AskAlways(newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: w.clock.Now, Prefix: "work", Timeout: time.Minute}))
	return w
}

// call makes a call, and holds what it costs the server.
func (w *work) call(what string, f func() error) {
	w.Helper()
	if err := w.server.ConfigResetStat(w.Context()).Err(); err != nil {
		w.Fatal(err)
	}
	began := w.cpu()
	if err := f(); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
	took := w.cpu() - began
	commands := 0
	for _, m := range commandStats.FindAllStringSubmatch(w.server.Info(w.Context(), "commandstats").Val(), -1) {
		calls, _ := strconv.Atoi(m[2])
		switch m[1] {
		case "evalsha", "config", "info", "hello", "script":
		default:
			commands += calls
		}
	}
	w.commands, w.times = max(w.commands, commands), append(w.times, took)
	if commands > mostCommands {
		w.Errorf("%s: %d commands in %s, want %d at most", what, commands, took, mostCommands)
	}
	if took > mostTime {
		w.slow = append(w.slow, fmt.Sprintf("%s: %s", what, took))
	}
}

// cpu returns the time that the server's main thread has had a processor: what else runs on the machine
// does not count.
func (w *work) cpu() (all time.Duration) {
	for _, m := range cpuUsed.FindAllStringSubmatch(w.server.Info(w.Context(), "cpu").Val(), -1) {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			w.Fatal(err)
		}
		all += time.Duration(seconds * float64(time.Second))
	}
	return all
}

var cpuUsed = regexp.MustCompile(`used_cpu_(?:sys|user)_main_thread:([0-9.]+)`)

// check holds how long the calls took.
func (w *work) check() {
	w.Helper()
	slices.Sort(w.times)
	w.Logf("%d commands at most; of %d calls, half took %s at most, and 99 of 100 %s", w.commands, len(w.times), w.times[len(w.times)/2], w.times[len(w.times)*99/100])
	if len(w.slow) > len(w.times)/100 {
		w.Errorf("%d of %d calls took more than %s: %q", len(w.slow), len(w.times), mostTime, w.slow[:min(len(w.slow), 9)])
	}
}

func (w *work) giveBack(at, units int64) {
	w.Helper()
	w.call(fmt.Sprintf("GiveBack(%d before now, %d)", w.clock.Now()-at, units), func() error { return w.store.GiveBack(w.Context(), w.one, at, units) })
}

func (w *work) chargeMore(units int64) {
	w.Helper()
	w.call(fmt.Sprintf("ChargeMore(%d)", units), func() error { return w.store.ChargeMore(w.Context(), w.one, units) })
}

func (w *work) take(cost int64) {
	w.Helper()
	c := w.one
	c.Cost = cost
	w.call(fmt.Sprint("Take ", cost), func() error { _, err := w.store.Take(w.Context(), []window.Charge{c}); return err })
}

// TestWorkIsBounded gives back units all over large counters, charges them again, lets all
// of them leave the window, and resets: no call of the script takes more commands, or more
// time, than for a small one.
func TestWorkIsBounded(t *testing.T) {
	for _, test := range []struct {
		name   string
		algo   window.Algorithm
		length time.Duration
		n      int
		gap    int64 // ms
	}{
		{"zset", window.Zset{}, time.Minute, 150_000, 0},
		{"zset, spread", window.Zset{}, time.Hour, 35_000, 50},
		{"log", window.Log{}, time.Hour, 100_000, 10},
		{"stream", window.Stream{}, time.Hour, 35_000, 50},
		{"stream that keeps", window.Stream{Keep: 2 * time.Hour}, time.Minute, 20_000, 50},
		{"slices", window.Slices{Count: 600}, 600 * time.Second, 1_500, 500},
		{"adaptive slices", window.Slices{Min: 100 * time.Millisecond, Max: 10 * time.Second}, 50 * time.Second, 1_500, 50},
		{"layers", window.Layers{Coarse: 2 * time.Second, Fine: 100 * time.Millisecond}, 10 * time.Minute, 6_000, 100},
		{"gcra", window.GCRA{}, time.Hour, 1_000, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			one := charge("zone", "key", 1_000_000, test.length)
			one.Algorithm = test.algo
			w, r := newWork(t, one, test.n, test.gap), rand.New(rand.NewPCG(1, 1))
			for range 300 {
				w.clock.Add(r.Int64N(3))
				w.giveBack(w.spent[r.IntN(len(w.spent))], 1+r.Int64N(3))
				w.take(1 + r.Int64N(20))
				w.giveBack(w.clock.Now(), 1+r.Int64N(20))
				w.take(1_000_000) // denied
			}
			w.chargeMore(12_345)
			w.giveBack(w.clock.Now(), 6_789)
			// All of it leaves the window, and what comes next tidies up.
			w.clock.Add(test.length.Milliseconds() - 50)
			for range 300 {
				w.take(1)
				w.clock.Add(1)
				w.giveBack(w.clock.Now()-1, 1)
			}
			w.call("Reset", func() error { return w.store.Reset(w.Context(), w.one) })
			w.check()
		})
	}
}

// TestWorkOfManyGiveBacks gives back most of a stream, one entry in the middle after the
// other, and compares what is left.
func TestWorkOfManyGiveBacks(t *testing.T) {
	for _, algo := range []window.Algorithm{window.Stream{}, window.Log{}} {
		t.Run(algo.Name(), func(t *testing.T) {
			one := charge("zone", "key", 1_000_000, time.Hour)
			one.Algorithm, one.Cost = algo, 3
			w, r := newWork(t, one, 10_000, 50), rand.New(rand.NewPCG(1, 1))
			left := int64(len(w.spent)) * one.Cost
			for i, k := range r.Perm(len(w.spent) - 100)[:8_000] {
				back := 1 + r.Int64N(3)
				if i%50 == 0 {
					w.giveBack(w.spent[k], back)
				} else if err := w.store.GiveBack(t.Context(), one, w.spent[k], back); err != nil {
					t.Fatal(err)
				}
				left -= back
			}
			if got := charged(t, w.store, one); got != left {
				t.Errorf("%d units are left, want %d", got, left)
			}
			for range 100 {
				w.clock.Add(1)
				w.take(1 + r.Int64N(50))
				w.take(1_000_000)
			}
			w.check()
		})
	}
}

// TestLargeKeysShrink lets all of a large counter leave the window at once: what comes next
// removes it, some at a time, and as much as is left of it with few requests more.
func TestLargeKeysShrink(t *testing.T) {
	const n = 5_000
	for _, test := range []struct {
		algo    window.Algorithm
		size    func(w *work, key string) int64
		atOnce  int64 // removed in a call, at most
		charges int   // until all is gone
	}{
		{window.Zset{}, func(w *work, key string) int64 { return w.server.ZCard(w.Context(), key).Val() }, 500, 15},
		{window.Stream{}, func(w *work, key string) int64 { return w.server.XLen(w.Context(), key).Val() }, 1_100, 6},
		{window.Layers{Coarse: 10 * time.Second, Fine: 50 * time.Millisecond}, func(w *work, key string) int64 { return w.server.HLen(w.Context(), key).Val() }, 200, 600},
		{window.Log{}, func(w *work, key string) int64 { return w.server.StrLen(w.Context(), key).Val() / 50 }, n, 1},
	} {
		t.Run(test.algo.Name(), func(t *testing.T) {
			one := charge("zone", "key", 1_000_000, 300*time.Second)
			one.Algorithm = test.algo
			w := newWork(t, one, n, 50)
			key := "work:2-" + test.algo.Name() + ":zone:key"
			before := test.size(w, key)
			w.clock.Add(one.Policies[0].Window.Milliseconds() + 10)
			for range test.charges {
				w.take(1)
				now := test.size(w, key)
				if before-now > test.atOnce {
					t.Errorf("%d removed at once, want %d at most", before-now, test.atOnce)
				}
				before = now
				w.clock.Add(1)
			}
			if most := int64(test.charges) + 400; before > most {
				t.Errorf("%d are left after %d more charges, want %d at most", before, test.charges, most)
			}
		})
	}
}
