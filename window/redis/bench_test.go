package redis_test

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// BenchmarkTake decides on random keys from 1 and from 128 goroutines.
func BenchmarkTake(b *testing.B) {
	for _, algo := range []window.Algorithm{window.Zset{}, window.Log{}, window.GCRA{}, window.Slices{}} {
		for _, callers := range []int{1, 128} {
			b.Run(algo.Name()+"/callers="+strconv.Itoa(callers), func(b *testing.B) {
				own := redistest.Start(b)
				server := own.Client(b)
				s := redis.New(redis.Options{Addresses: []string{own.Addr}, Timeout: time.Minute})
				b.Cleanup(func() { _ = s.Close() })
				keys := make([]string, 100_000)
				for i := range keys {
					keys[i] = "key" + strconv.Itoa(i)
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				done := make(chan struct{})
				b.ReportAllocs()
				b.ResetTimer()
				before := serverCPU(b, server)
				for range callers {
					go func() {
						defer func() { done <- struct{}{} }()
						c := []window.Charge{charge("zone", "", 1_000_000, time.Second)}
						c[0].Algorithm = algo
						for left.Add(-1) >= 0 {
							c[0].Key = keys[rand.IntN(len(keys))]
							if _, err := s.Take(b.Context(), c); err != nil {
								b.Error(err)
								return
							}
						}
					}()
				}
				for range callers {
					<-done
				}
				b.ReportMetric((serverCPU(b, server)-before)*1e6/float64(b.N), "server-µs/op")
			})
		}
	}
}

// serverCPU returns the seconds of CPU that the server has used.
func serverCPU(b *testing.B, server *goredis.Client) float64 {
	sum := 0.0
	for _, m := range cpuStats.FindAllStringSubmatch(server.Info(b.Context(), "cpu").Val(), -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		sum += seconds
	}
	return sum
}

var cpuStats = regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`)
