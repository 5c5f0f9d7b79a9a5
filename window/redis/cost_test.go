package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// steady is a key with n units in its window, of which one leaves and one comes
// every ten milliseconds.
type steady struct {
	testing.TB
	store   *redis.Store
	now     int64
	request []window.Charge
}

const pace = 10 // ms

func newSteady(tb testing.TB, s *redistest.Server, algo window.Algorithm, n int64) *steady {
	st := &steady{TB: tb, now: 1_800_000_000_000}
	st.store = redis.New(redis.Options{
		Addresses: []string{s.Addr}, Timeout: time.Minute,
		Now: func() int64 { st.now += pace; return st.now },
	})
	tb.Cleanup(func() { _ = st.store.Close() })
	st.request = []window.Charge{{
		Zone: "steady", Key: strconv.FormatInt(n, 10), Cost: 1, Algorithm: algo,
		Policies: []window.Policy{{Limit: 2 * n, Window: time.Duration(n*pace) * time.Millisecond}},
	}}
	st.take(n + 1_000)
	return st
}

// take takes n times, in batches.
func (st *steady) take(n int64) {
	for n > 0 {
		batch := make([][]window.Charge, min(n, 500))
		for i := range batch {
			batch[i] = st.request
		}
		for _, r := range st.store.TakeBatch(st.Context(), batch) {
			if r.Err != nil || !r.Decisions[0].Allowed {
				st.Fatalf("TakeBatch = %+v", r)
			}
		}
		n -= int64(len(batch))
	}
}

// field returns a number from the server's INFO.
func field(tb testing.TB, c *goredis.Client, section, name string) float64 {
	tb.Helper()
	info, err := c.Info(tb.Context(), section).Result()
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if _, value, ok := strings.Cut(line, name); ok {
			value, _, _ = strings.Cut(strings.TrimSpace(value), ",")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				tb.Fatal(err)
			}
			return n
		}
	}
	tb.Fatalf("no %s in INFO %s", name, section)
	return 0
}

// BenchmarkCost reports the time that an admitted decision takes inside the
// server as the number of units in its window grows.
func BenchmarkCost(b *testing.B) {
	for _, algo := range []window.Algorithm{window.Log{}, window.Zset{}} {
		for _, n := range []int64{10, 100, 1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/n=%d", algo.Name(), n), func(b *testing.B) {
				own := redistest.Start(b)
				c := own.Client(b)
				st := newSteady(b, own, algo, n)
				cpu := func() float64 {
					return field(b, c, "cpu", "used_cpu_user_main_thread:") + field(b, c, "cpu", "used_cpu_sys_main_thread:")
				}
				c.ConfigResetStat(b.Context())
				before := cpu()
				b.ResetTimer()
				st.take(int64(b.N))
				b.StopTimer()
				b.ReportMetric(field(b, c, "commandstats", "cmdstat_evalsha:calls=")/float64(b.N), "calls/op")
				b.ReportMetric(field(b, c, "commandstats", "usec_per_call=")+0, "µs-script/op")
				b.ReportMetric((cpu()-before)*1e6/float64(b.N), "µs-cpu/op")
			})
		}
	}
}
