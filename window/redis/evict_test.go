package redis_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
)

// TestEviction has a server without memory evict counters, by every policy. Each request gets a
// decision; a counter that was evicted begins anew, and any other one holds its limit.
func TestEviction(t *testing.T) {
	for _, policy := range []string{"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			own, clock := redistest.Start(t), windowtest.NewClock()
			o := redis.Options{Addresses: []string{own.Addr}, Now: clock.Now, Prefix: "evict", Timeout: patience}
			e := &evicting{T: t, Rand: rand.New(rand.NewPCG(1, 1)), store: redis.AskAlways(newStore(t, o)), naming: newNaming(o), admitted: map[counter]int64{}}
			e.run(own, policy)
		})
	}
}

// evicting is a flood of keys on a server that evicts them.
type evicting struct {
	*testing.T
	*rand.Rand
	store    window.Store
	naming   *naming.Naming
	admitted map[counter]int64 // units
}

// counter is one of several in a key, if it is packed.
type counter struct{ key, zone, name string }

const evictedLimit = 5

func (e *evicting) run(own *redistest.Server, policy string) {
	admin := own.Client(e.T)
	configure := func(setting, value string) {
		if err := admin.ConfigSet(e.Context(), setting, value).Err(); err != nil {
			e.Fatal(err)
		}
	}
	e.flood(20) // what a connection and the script take is there
	info, err := admin.InfoMap(e.Context(), "memory").Result()
	if err != nil {
		e.Fatal(err)
	}
	used, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		e.Fatal(err)
	}
	told := admin.Subscribe(e.Context(), "__keyevent@0__:evicted", "end")
	defer func() { _ = told.Close() }()
	for range 2 {
		if _, err := told.Receive(e.Context()); err != nil {
			e.Fatal(err)
		}
	}
	configure("notify-keyspace-events", "Ee")
	configure("maxmemory-policy", policy)
	configure("maxmemory", strconv.FormatInt(used+512<<10, 10))
	evicted, done := map[string]int64{}, make(chan error, 1)
	go func() {
		for {
			m, err := told.ReceiveMessage(e.Context())
			if err != nil || m.Channel == "end" {
				done <- err
				return
			}
			evicted[m.Payload]++
		}
	}()
	e.flood(300)
	if err := admin.Publish(e.Context(), "end", "").Err(); err != nil {
		e.Fatal(err)
	}
	if err := <-done; err != nil {
		e.Fatal(err)
	}
	again := 0
	for c, n := range e.admitted {
		if most := evictedLimit * (1 + evicted[c.key]); n > most {
			e.Errorf("%+v: %d units passed, want %d at most: it was evicted %d times", c, n, most, evicted[c.key])
		}
		if n > evictedLimit {
			again++
		}
	}
	e.Logf("%d keys evicted; of %d counters, %d passed more than their limit for that", len(evicted), len(e.admitted), again)
	if len(evicted) < 100 || again == 0 {
		e.Errorf("too few to mean something")
	}
}

// flood takes, peeks, gives back and resets in batches, on some counters again and again.
func (e *evicting) flood(batches int) {
	for range batches {
		requests := make([][]window.Charge, 64)
		for i := range requests {
			requests[i] = []window.Charge{e.charge()}
			if c := e.charge(); e.IntN(4) == 0 && c.Zone != requests[i][0].Zone {
				requests[i] = append(requests[i], c)
			}
		}
		for i, r := range e.store.TakeBatch(e.Context(), requests) {
			if r.Err != nil {
				e.Fatalf("TakeBatch: %v", r.Err)
			}
			if !window.Allowed(r.Decisions) {
				continue
			}
			for _, c := range requests[i] {
				e.admitted[e.counter(c)] += c.Cost
			}
			c := requests[i][0]
			if e.IntN(10) > 0 {
				continue
			}
			if err := e.store.GiveBack(e.Context(), c, r.Decisions[0].At, c.Cost); err != nil {
				e.Fatalf("GiveBack: %v", err)
			}
			e.admitted[e.counter(c)] -= c.Cost
		}
		if _, err := e.store.Peek(e.Context(), requests[0]); err != nil {
			e.Fatalf("Peek: %v", err)
		}
	}
}

func (e *evicting) counter(c window.Charge) counter {
	return counter{string(e.naming.AppendKey(nil, &c)), c.Zone, c.Key}
}

// charge returns one on a counter that few or many requests are about.
func (e *evicting) charge() window.Charge {
	n := e.IntN(len(algorithms) + 2)
	c := window.Charge{
		Key: fmt.Sprint(e.IntN(1 + e.IntN(3_000))), Cost: 1 + e.Int64N(2),
		Policies: []window.Policy{{Limit: evictedLimit, Window: time.Hour}},
	}
	switch n {
	case len(algorithms):
		c.Algorithm, c.Pack = window.GCRA{}, 1<<16
	case len(algorithms) + 1:
		c.Algorithm, c.Pack = window.Slices{Count: 1}, 1<<16
	default:
		c.Algorithm = suited(algorithms[n], time.Hour)
	}
	c.Zone = fmt.Sprint(n)
	return c
}
