package memory

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const benchKeys = 100_000

// drive calls take with random keys, as long as addresses are, on the number of
// goroutines that -cpu says. All keys have been taken once before. Take must not
// keep the key: drive overwrites it each time, as a request does.
func drive(b *testing.B, take func(key string)) {
	b.Helper()
	name := func(room *[16]byte, i int) string {
		key := room[:0]
		key = append(key, "198.51."...)
		key = strconv.AppendInt(key, int64(i/256), 10)
		key = append(key, '.')
		key = strconv.AppendInt(key, int64(i%256), 10)
		return unsafe.String(&key[0], len(key))
	}
	var room [16]byte
	for i := range benchKeys {
		take(name(&room, i))
	}
	var seed atomic.Uint64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		r := rand.New(rand.NewPCG(1, seed.Add(1)))
		var room [16]byte
		for pb.Next() {
			take(name(&room, r.IntN(benchKeys)))
		}
	})
}

// BenchmarkTake decides on 100,000 keys, of which each may pass 100 times in a
// second. Compare it with BenchmarkLockedRings of the same run.
func BenchmarkTake(b *testing.B) {
	for _, algo := range []window.Algorithm{window.Zset{}, window.Log{}, window.Slices{}, window.GCRA{}} {
		b.Run(algo.Name(), func(b *testing.B) {
			s := New(Options{})
			defer func() { _ = s.Close() }()
			policies := []window.Policy{{Limit: 100, Window: time.Second}}
			charges := sync.Pool{New: func() any {
				return &[]window.Charge{{Zone: "per_client", Cost: 1, Algorithm: algo, Policies: policies}}
			}}
			drive(b, func(key string) {
				c := charges.Get().(*[]window.Charge)
				(*c)[0].Key = key
				if _, err := s.Take(context.Background(), *c); err != nil {
					b.Error(err)
				}
				charges.Put(c)
			})
		})
	}
}

// BenchmarkLockedRings is what to compare with: a ring of times for each key, each
// with a lock, in one map with a lock.
func BenchmarkLockedRings(b *testing.B) {
	type ring struct {
		mu    sync.Mutex
		times []time.Time
		next  int
	}
	var mu sync.Mutex
	rings := make(map[string]*ring)
	drive(b, func(key string) {
		mu.Lock()
		r, ok := rings[key]
		if !ok {
			r = &ring{times: make([]time.Time, 100)}
			rings[strings.Clone(key)] = r
		}
		mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		if time.Since(r.times[r.next]) > time.Second {
			r.times[r.next] = time.Now()
			r.next = (r.next + 1) % len(r.times)
		}
	})
}
