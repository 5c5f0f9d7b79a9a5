package redis_test

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/windowtest"
)

// steady is a key with n units in its window, of which one leaves and one comes
// every second, alone on a server.
type steady struct {
	testing.TB
	server *goredis.Client
	store  *redis.Store
	batch  [][]window.Charge
}

func newSteady(tb testing.TB, algo window.Algorithm, n int64) *steady {
	const pace = 1_000 // ms
	own, clock := redistest.Start(tb), windowtest.NewClock()
	st := &steady{TB: tb, server: own.Client(tb), store: redis.New(redis.Options{
		Addresses: []string{own.Addr}, Timeout: time.Minute,
		Now: func() int64 { clock.Add(pace); return clock.Now() },
	})}
	tb.Cleanup(func() { _ = st.store.Close() })
	one := charge("zone", "key", 2*n, time.Duration(n*pace)*time.Millisecond)
	one.Algorithm = algo
	for range 500 {
		st.batch = append(st.batch, []window.Charge{one})
	}
	st.take(n + 1_000)
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

// TestCostIsFlat holds what an admitted decision costs with a hundred thousand
// units in the window against what it costs with ten. Of many short measurements
// the fastest is free of what else the machine did.
func TestCostIsFlat(t *testing.T) {
	for _, test := range []struct {
		algo  window.Algorithm
		calls float64
	}{
		{window.Log{}, 4.5},
		{window.Zset{}, 4.1},
	} {
		few, many := newSteady(t, test.algo, 10), newSteady(t, test.algo, 100_000)
		least := [2]float64{math.Inf(1), math.Inf(1)}
		for range 30 {
			for i, st := range []*steady{few, many} {
				micros, calls := st.measure(500)
				least[i] = min(least[i], micros)
				if calls > test.calls {
					t.Fatalf("%s: %.2f calls per decision, want %.1f at most", test.algo.Name(), calls, test.calls)
				}
			}
		}
		t.Logf("%s: %.1f µs with 10 units, %.1f µs with 100,000", test.algo.Name(), least[0], least[1])
		if least[1] > 2*least[0] {
			t.Errorf("%s: %.1f µs with 100,000 units, more than twice the %.1f µs with 10", test.algo.Name(), least[1], least[0])
		}
	}
}

// BenchmarkCost reports the time that an admitted decision takes inside the
// server as the number of units in its window grows.
func BenchmarkCost(b *testing.B) {
	for _, algo := range []window.Algorithm{window.Log{}, window.Zset{}} {
		for _, n := range []int64{10, 100, 1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/n=%d", algo.Name(), n), func(b *testing.B) {
				st := newSteady(b, algo, n)
				b.ResetTimer()
				micros, calls := st.measure(int64(b.N))
				b.ReportMetric(micros, "script-µs/op")
				b.ReportMetric(calls, "calls/op")
			})
		}
	}
}
