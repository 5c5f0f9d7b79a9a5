package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/traffic"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// costs is what an algorithm takes of a machine.
type costs struct {
	redisBytes  []int64 // per key, by the number of units in the window, see sizes
	memoryBytes []int64
	redisMicros []float64 // of the server per decision, by the number of units, see sizes
	memoryNanos float64   // per decision in process, limit half full
}

// sizes are the numbers of units in the window for which costs are measured.
var sizes = []int{10, 100, 1_000, 10_000, 100_000}

const rounds = 5 // of which the median counts

// measureMemory comes first of all: what clients of Redis leave behind would go from
// the heap at any time.
func (c *costs) measureMemory(algorithm window.Algorithm) {
	for _, n := range sizes {
		c.memoryBytes = append(c.memoryBytes, inMemory(algorithm, n))
	}
	c.memoryNanos = speed(algorithm)
}

func (c *costs) measureRedis(algorithm window.Algorithm, server *redistest.Server) error {
	for _, n := range sizes {
		bytes, micros, err := onRedis(algorithm, server, n)
		if err != nil {
			return err
		}
		c.redisBytes = append(c.redisBytes, bytes)
		c.redisMicros = append(c.redisMicros, micros)
	}
	return nil
}

// launch starts a server that is a Cluster by itself: there, every request of a batch
// is a run of the script of its own, at a time of its own.
func launch(dir string) (*redistest.Server, error) {
	server, err := redistest.Launch(dir, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	if err := server.OwnAllSlots(context.Background()); err != nil {
		server.Kill()
		return nil, err
	}
	return server, nil
}

// clock is the time of a store; each look at it is a step ahead.
type clock struct {
	at   float64 // ms
	step float64
}

func (c *clock) now() int64 {
	c.at += c.step
	return int64(c.at)
}

// fill spends n units on a key, spread evenly over a window, and leaves the clock at the end
// of that window.
func fill(store window.Store, c *clock, algorithm window.Algorithm, key string, n int) error {
	charge := []window.Charge{{
		Zone: "z", Key: key, Cost: 1, Algorithm: algorithm,
		Policies: []window.Policy{{Limit: int64(2 * n), Window: traffic.Length}},
	}}
	batch := make([][]window.Charge, 0, 500)
	c.step = float64(traffic.Length.Milliseconds()-1) / float64(n)
	for i := range n {
		batch = append(batch, charge)
		if len(batch) < cap(batch) && i < n-1 {
			continue
		}
		for _, r := range store.TakeBatch(context.Background(), batch) {
			if r.Err != nil {
				return r.Err
			}
		}
		batch = batch[:0]
	}
	c.step = 0
	return nil
}

// onRedis returns MEMORY USAGE of a key with n units, and the server's time for
// one further decision that is allowed.
func onRedis(algorithm window.Algorithm, server *redistest.Server, n int) (int64, float64, error) {
	ctx := context.Background()
	now := clock{at: float64(time.Now().UnixMilli())}
	store := redis.New(redis.Options{Addresses: []string{server.Addr}, Cluster: true, Timeout: time.Minute, Now: now.now})
	defer func() { _ = store.Close() }()
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr, DisableIdentity: true})
	defer func() { _ = client.Close() }()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return 0, 0, err
	}
	if err := fill(store, &now, algorithm, "k", n); err != nil {
		return 0, 0, err
	}
	keys, err := client.Keys(ctx, "sw:*").Result()
	if err != nil {
		return 0, 0, err
	}
	if len(keys) == 0 {
		return 0, 0, errors.New("no key in Redis")
	}
	bytes, err := client.MemoryUsage(ctx, keys[0], 0).Result()
	if err != nil {
		return 0, 0, err
	}
	charge := []window.Charge{{
		Zone: "z", Key: "k", Cost: 1, Algorithm: algorithm,
		Policies: []window.Policy{{Limit: int64(4*n) + 10_000, Window: traffic.Length}},
	}}
	var micros []float64
	for range rounds {
		if err := client.ConfigResetStat(ctx).Err(); err != nil {
			return 0, 0, err
		}
		for range 200 {
			now.at += float64(traffic.Length.Milliseconds()) / float64(n) // one leaves for each that comes
			if _, err := store.Take(ctx, charge); err != nil {
				return 0, 0, err
			}
		}
		info, err := client.InfoMap(ctx, "commandstats").Result()
		if err != nil {
			return 0, 0, err
		}
		var calls, usec int64
		if _, err := fmt.Sscanf(info["Commandstats"]["cmdstat_evalsha"], "calls=%d,usec=%d", &calls, &usec); err != nil {
			return 0, 0, fmt.Errorf("commandstats: %w", err)
		}
		micros = append(micros, float64(usec)/float64(calls))
	}
	return bytes, median(micros), nil
}

// inMemory returns the bytes of the heap per key with n units.
func inMemory(algorithm window.Algorithm, n int) int64 {
	keys := max(200, 200_000/n)
	now := clock{at: float64(traffic.Start)}
	store := memory.New(memory.Options{Now: now.now, SweepInterval: -1})
	defer func() { _ = store.Close() }()
	before := heap()
	for k := range keys {
		if err := fill(store, &now, algorithm, "key-"+strconv.Itoa(k), n); err != nil {
			panic(err) // memory does not fail
		}
	}
	after := heap()
	runtime.KeepAlive(store)
	return (int64(after) - int64(before)) / int64(keys)
}

// heap returns the bytes that are in use. What a pool holds goes with the second
// collection, and what has a finalizer with one more.
func heap() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// speed returns the nanoseconds of a decision in process, on 1,000 keys.
func speed(algorithm window.Algorithm) float64 {
	const decisions, keys = 200_000, 1_000
	names := make([]string, keys)
	for i := range names {
		names[i] = "key-" + strconv.Itoa(i)
	}
	var all []float64
	for range rounds {
		now := traffic.Start
		store := memory.New(memory.Options{Now: func() int64 { return now }, SweepInterval: -1})
		began := time.Now()
		for i := range decisions {
			now = traffic.Start + int64(i)*3
			_, _ = store.Take(context.Background(), []window.Charge{{
				Zone: "z", Key: names[i%keys], Policies: traffic.Policies, Cost: 1, Algorithm: algorithm,
			}})
		}
		all = append(all, float64(time.Since(began).Nanoseconds())/decisions)
		_ = store.Close()
	}
	return median(all)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
