package redis_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

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
