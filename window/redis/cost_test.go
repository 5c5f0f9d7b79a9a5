package redis_test

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// steady is a key with n units in its window, alone on a server. Every second
// some come at once, and the same number leaves.
type steady struct {
	testing.TB
	server *goredis.Client
	store  *redis.Store
	batch  [][]window.Charge
}

func newSteady(tb testing.TB, algo func(length time.Duration) window.Algorithm, n, atOnce int64) *steady {
	const pace = 1_000 // ms
	own, clock := redistest.Start(tb), windowtest.NewClock()
	st := &steady{TB: tb, server: own.Client(tb), store: redis.New(redis.Options{
		Addresses: []string{own.Addr}, Timeout: time.Minute,
		Now: func() int64 { clock.Add(pace); return clock.Now() },
	})}
	tb.Cleanup(func() { _ = st.store.Close() })
	length := time.Duration(n/atOnce*pace) * time.Millisecond
	one := charge("zone", "key", 2*n, length)
	one.Algorithm, one.Cost = algo(length), atOnce
	for range 500 {
		st.batch = append(st.batch, []window.Charge{one})
	}
	st.take(n/atOnce + 1_000)
	return st
}

// take takes n times, in batches.
func (st *steady) take(n int64) {
	for n > 0 {
		batch := st.batch[:min(n, int64(len(st.batch)))]
		for _, r := range st.store.TakeEach(st.Context(), batch) {
			if r.Err != nil || !r.Decisions[0].Allowed {
				st.Fatalf("TakeEach: %+v", r)
			}
		}
		n -= int64(len(batch))
	}
}

var commandStats = regexp.MustCompile(`cmdstat_(\w+):calls=(\d+),usec=(\d+)`)

// measure takes n times, and returns the time inside the script and the commands
// called there, per decision.
func (st *steady) measure(n int64) (micros, calls float64) {
	st.server.ConfigResetStat(st.Context())
	st.take(n)
	for _, m := range commandStats.FindAllStringSubmatch(st.server.Info(st.Context(), "commandstats").Val(), -1) {
		count, _ := strconv.ParseFloat(m[2], 64)
		usec, _ := strconv.ParseFloat(m[3], 64)
		switch m[1] {
		case "evalsha":
			micros = usec / float64(n)
		case "config", "info", "hello", "script":
		default:
			calls += count / float64(n)
		}
	}
	return micros, calls
}

// plain makes the same algorithm for any window.
func plain(algo window.Algorithm) func(time.Duration) window.Algorithm {
	return func(time.Duration) window.Algorithm { return algo }
}

func layersOf(length time.Duration) window.Algorithm {
	return window.Layers{Coarse: length / 5, Fine: length / 50}
}

// TestCostIsFlat compares the cost of an admitted decision with a hundred thousand units in
// the window with its cost with few: ten, or the number that fills every slice. The fastest
// of many measurements, of a few ms each, is free of other work of the machine.
func TestCostIsFlat(t *testing.T) {
	for _, test := range []struct {
		name        string
		algo        func(length time.Duration) window.Algorithm
		few, atOnce int64
		calls       float64 // per decision
		most        float64 // times the cost with few
	}{
		{"log", plain(window.Log{}), 10, 1, 4.6, 2},
		{"zset", plain(window.Zset{}), 10, 1, 6.1, 2},
		{"stream", plain(window.Stream{}), 10, 1, 6.1, 2},
		{"gcra", plain(window.GCRA{}), 10, 1, 2.1, 1.5},
		{"slices", plain(window.Slices{}), 1_000, 10, 4.1, 1.5},
		{"layers", layersOf, 1_000, 10, 6.1, 1.5},
	} {
		t.Run(test.name, func(t *testing.T) {
			few, many := newSteady(t, test.algo, test.few, test.atOnce), newSteady(t, test.algo, 100_000, test.atOnce)
			least := [2]float64{math.Inf(1), math.Inf(1)}
			for range 100 {
				for i, st := range []*steady{few, many} {
					micros, calls := st.measure(20)
					least[i] = min(least[i], micros)
					if calls > test.calls {
						t.Fatalf("%.2f calls per decision, want %.1f at most", calls, test.calls)
					}
				}
			}
			t.Logf("%.1f µs with %d units, %.1f µs with 100,000", least[0], test.few, least[1])
			if least[1] > test.most*least[0] {
				t.Errorf("%.1f µs with 100,000 units, more than %.1f times the %.1f µs with %d", least[1], test.most, least[0], test.few)
			}
		})
	}
}

// BenchmarkCost reports the time that an admitted decision takes inside the
// server as the number of units in its window grows.
func BenchmarkCost(b *testing.B) {
	for _, algo := range []window.Algorithm{window.Log{}, window.Zset{}} {
		for _, n := range []int64{10, 100, 1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/n=%d", algo.Name(), n), func(b *testing.B) {
				st := newSteady(b, plain(algo), n, 1)
				b.ResetTimer()
				micros, calls := st.measure(int64(b.N))
				b.ReportMetric(micros, "script-µs/op")
				b.ReportMetric(calls, "calls/op")
			})
		}
	}
}
