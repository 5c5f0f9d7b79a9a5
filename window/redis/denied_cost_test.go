package redis_test

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/denials"
)

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
			remember(s, []window.Charge{one}, ds)
		}
		for n := range 200_000 {
			deny(n)
		}
		n, bytes := redis.Denials(s).Count()
		took := heap() - before
		t.Logf("%d policies: %d denials, %d bytes, %d on the heap", policies, n, bytes, took)
		if bytes > denials.MostBytes || bytes < denials.MostBytes*9/10 {
			t.Errorf("%d policies: %d bytes, want nearly %d", policies, bytes, denials.MostBytes)
		}
		if took > denials.MostBytes {
			t.Errorf("%d policies: %d bytes on the heap, want %d at most", policies, took, denials.MostBytes)
		}
		clock.Add(1_000)
		for i := range n {
			deny(i % 1_000)
		}
		if n, _ := redis.Denials(s).Count(); n > 2_000 {
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
	if n, bytes := redis.Denials(s).Count(); n != 300 || bytes < 300*200 {
		t.Errorf("%d denials of %d bytes, want 300", n, bytes)
	}
	_, before := redis.Denials(s).Count()
	for key := range 300 { // as if they had been asked for twice at once
		remember(s, []window.Charge{charge("zone", strconv.Itoa(key), 0, time.Hour)}, []window.Decision{{RetryAfter: window.Never, At: clock.Now()}})
	}
	if n, bytes := redis.Denials(s).Count(); n != 300 || bytes != before {
		t.Errorf("%d denials of %d bytes, want 300 of %d", n, bytes, before)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	clock.Add(1_000)
	for key := range 300 {
		_, _ = s.Take(t.Context(), []window.Charge{charge("zone", strconv.Itoa(key), 0, time.Hour)})
	}
	if n, bytes := redis.Denials(s).Count(); n != 0 || bytes != 0 {
		t.Errorf("%d denials of %d bytes when all are over", n, bytes)
	}
}

// TestDeniedAllocations holds that a remembered denial costs no memory but that of its
// decisions, for which there is room.
func TestDeniedAllocations(t *testing.T) {
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Now: clock.Now})
	for _, algo := range append(algorithms, window.Slices{Min: time.Second, Max: time.Minute}, window.GCRA{Burst: 3}) {
		one := charge("zone", "a key of some length", 0, time.Hour)
		one.Algorithm = suited(algo, time.Hour)
		charges, room := []window.Charge{one}, take(t, s, one)
		if n := testing.AllocsPerRun(100, func() { _, _ = s.TakeInto(t.Context(), room, charges) }); n > 0 {
			t.Errorf("%s: %.0f allocations, want none", algo.Name(), n)
		}
	}
}

// BenchmarkDenied takes where a denial is remembered, where the server is asked, and
// in the store in memory.
func BenchmarkDenied(b *testing.B) {
	clock := windowtest.NewClock()
	o := redis.Options{Now: clock.Now, Addresses: []string{server.Addr}, Prefix: "bench", Timeout: patience}
	for _, c := range []struct {
		name  string
		store window.Store
	}{
		{"remembered", redis.New(o)},
		{"asked", redis.AskAlways(redis.New(o))},
		{"memory", memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})},
	} {
		defer func() { _ = c.store.Close() }()
		for _, algo := range algorithms {
			one := charge("zone", "192.0.2.1", 0, time.Hour)
			one.Algorithm = suited(algo, time.Hour)
			charges := []window.Charge{one}
			b.Run(c.name+"/"+algo.Name(), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if ds, err := c.store.Take(b.Context(), charges); err != nil || ds[0].Allowed {
						b.Fatal(ds, err)
					}
				}
			})
		}
	}
}
