package redis_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/batch"
)

// TestTogether makes a thousand requests come while the server is busy: they go in as
// few runs of the script as they fit in, and each gets an answer of its own.
func TestTogether(t *testing.T) {
	own := redistest.Start(t)
	server := own.Client(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	for range 5 { // the first trip alone may be as long as to a distant server, which gets more batches
		warm(t, s, "key")
	}
	server.ConfigResetStat(t.Context())
	const n, limit = 1_000, 300
	results := make([]window.Result, n)
	var group sync.WaitGroup
	own.Stop()
	for i := range n {
		zone := "zone " + strconv.Itoa(i%2)
		request := []window.Charge{charge(zone, "key", limit, time.Hour), charge("other", strconv.Itoa(i), 1, time.Hour)}
		group.Go(func() { results[i].Decisions, results[i].Err = s.Take(t.Context(), request) })
	}
	eventually(t, patience, "all wait but those that were sent", func() bool {
		_, waiting := redis.Load(s)
		return waiting >= n-batch.MinInFlight*batch.MaxWeight/2 // each request weighs two
	})
	own.Cont()
	group.Wait()
	left := map[int]map[int64]bool{0: {}, 1: {}}
	for i, r := range results {
		if r.Err != nil || len(r.Decisions) != 2 {
			t.Fatalf("request %d: %+v", i, r)
		}
		own, other := r.Decisions[0], r.Decisions[1]
		if want := int64(1); own.Allowed {
			want = 0
			if left[i%2][own.Remaining] {
				t.Errorf("request %d: %d remaining, as after another", i, own.Remaining)
			}
			left[i%2][own.Remaining] = true
			if other.Remaining != want {
				t.Errorf("request %d: allowed, with %d of its own key remaining, want %d", i, other.Remaining, want)
			}
		} else if own.Remaining != 0 || other.Remaining != want || !other.Allowed {
			t.Errorf("request %d: denied, with %+v", i, r.Decisions)
		}
	}
	if len(left[0]) != limit || len(left[1]) != limit {
		t.Errorf("%d and %d allowed, want %d each", len(left[0]), len(left[1]), limit)
	}
	calls, least := commandCalls(t, server, "evalsha"), 2*n/batch.MaxWeight
	if most := least + 6; calls < least || calls > most { // the last ones may be halved
		t.Errorf("%d runs of the script, want %d at least, for others not to wait, and %d at most", calls, least, most)
	}
}

// TestBatchWeight holds that a run of the script is bounded by how long it takes, which
// depends on what it decides on.
func TestBatchWeight(t *testing.T) {
	own := redistest.Start(t)
	server := own.Client(t)
	once := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	twice := newStore(t, redis.Options{Addresses: []string{own.Addr}, KeySecret: "the secret of a fleet", FormerKeySecret: "the secret before it"})
	const n = 256
	for name, test := range map[string]struct {
		store  *redis.Store
		change func(*window.Charge)
		weight int // of a request, which is a charge of 1 with zset, unless it is changed
	}{
		"units":        {once, func(*window.Charge) {}, 1},
		"two names":    {twice, func(*window.Charge) {}, 2},
		"a digit":      {once, func(c *window.Charge) { c.Cost = 9 }, 3},
		"two digits":   {once, func(c *window.Charge) { c.Cost = 64 }, 5},
		"four digits":  {once, func(c *window.Charge) { c.Cost = 9_999 }, 9},
		"stream":       {once, func(c *window.Charge) { c.Algorithm = window.Stream{} }, 2},
		"sixty slices": {once, func(c *window.Charge) { c.Algorithm = window.Slices{} }, 4},
		"two units":    {once, func(c *window.Charge) { c.Algorithm, c.Cost = window.Slices{}, 2 }, 9},
		"weighted":     {once, func(c *window.Charge) { c.Algorithm = window.Slices{Weighted: true} }, 9},
		"adaptive":     {once, func(c *window.Charge) { c.Algorithm = window.Slices{Min: time.Minute, Max: time.Hour} }, 9},
		"of slices":    {once, func(c *window.Charge) { c.Algorithm, c.Policies = window.Slices{}, limits(2) }, 17},
		"layers":       {once, func(c *window.Charge) { c.Algorithm = window.Layers{Coarse: time.Minute, Fine: time.Second} }, 6},
		"two limits":   {once, func(c *window.Charge) { c.Policies = limits(2) }, 1},
		"thirteen":     {once, func(c *window.Charge) { c.Policies = limits(13) }, 3},
		"of stream":    {once, func(c *window.Charge) { c.Algorithm, c.Policies = window.Stream{}, limits(13) }, 10},
		"limits":       {once, func(c *window.Charge) { c.Algorithm, c.Policies = window.GCRA{}, limits(300) }, 50},
		"cost of log":  {once, func(c *window.Charge) { c.Algorithm, c.Cost = window.Log{}, 64 }, 1},
	} {
		warm(t, test.store, name)
		var requests [][]window.Charge
		for i := range n {
			c := charge(name, strconv.Itoa(i), 10_000, time.Hour)
			test.change(&c)
			requests = append(requests, []window.Charge{c})
		}
		server.ConfigResetStat(t.Context())
		for i, r := range test.store.TakeBatch(t.Context(), requests) {
			if r.Err != nil || !r.Decisions[0].Allowed {
				t.Fatalf("%s: request %d: %+v", name, i, r)
			}
		}
		each := max(1, batch.MaxWeight/test.weight)
		if calls, want := commandCalls(t, server, "evalsha"), (n+each-1)/each; calls != want {
			t.Errorf("%s: %d runs of the script, want %d", name, calls, want)
		}
	}
}

// limits returns n policies, of different windows.
func limits(n int) (policies []window.Policy) {
	for i := range n {
		policies = append(policies, window.Policy{Limit: 10_000, Window: time.Hour + time.Duration(i)*time.Minute})
	}
	return policies
}

func commandCalls(t *testing.T, server *goredis.Client, command string) int {
	for _, m := range commandStats.FindAllStringSubmatch(server.Info(t.Context(), "commandstats").Val(), -1) {
		if m[1] == command {
			n, _ := strconv.Atoi(m[2])
			return n
		}
	}
	return 0
}

// TestTogetherAlike sends requests for a unit at once: the number that one run of the
// script takes, and up to two fewer or more.
func TestTogetherAlike(t *testing.T) {
	s := newStore(t, redis.Options{})
	for n := batch.MaxWeight - 2; n <= batch.MaxWeight+2; n++ {
		one, requests := charge("zone", strconv.Itoa(n), 1_000, time.Hour), [][]window.Charge{}
		for range n {
			requests = append(requests, []window.Charge{one})
		}
		for i, r := range s.TakeBatch(t.Context(), requests) {
			if want := int64(1_000 - i - 1); r.Err != nil || r.Decisions[0].Remaining != want {
				t.Fatalf("%d requests: number %d got %+v, want %d remaining", n, i, r, want)
			}
		}
	}
}

// TestTogetherButOne makes a request fail in the middle of others.
func TestTogetherButOne(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "p"})
	warm(t, s, "key")
	own.Client(t).Set(t.Context(), "p:2-zset:zone:5", "no set", 0)
	var requests [][]window.Charge
	for i := range 10 {
		requests = append(requests, []window.Charge{charge("first", strconv.Itoa(i), 3, time.Hour), charge("zone", strconv.Itoa(i), 3, time.Hour)})
	}
	for i, r := range s.TakeBatch(t.Context(), requests) {
		if i == 5 {
			if !errors.Is(r.Err, window.ErrUnavailable) || !strings.Contains(r.Err.Error(), "WRONGTYPE") {
				t.Errorf("request 5: %v, want the server's WRONGTYPE", r.Err)
			}
		} else if r.Err != nil || !window.Allowed(r.Decisions) {
			t.Errorf("request %d: %+v", i, r)
		}
	}
	if n := charged(t, s, charge("first", "5", 3, time.Hour)); n != 0 {
		t.Errorf("%d charged for the request that failed", n)
	}
}

// TestTogetherWithoutMemory has a server that takes no more: what it can deny it
// denies, and the others get its words. Nothing is charged.
func TestTogetherWithoutMemory(t *testing.T) {
	own := redistest.Start(t)
	server := own.Client(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	full := charge("zone", "full", 1, time.Hour)
	take(t, s, full)
	server.ConfigSet(t.Context(), "maxmemory", "1")
	var requests [][]window.Charge
	for i := range 20 {
		requests = append(requests, []window.Charge{full})
		if i%2 == 1 {
			requests[i] = []window.Charge{charge("zone", strconv.Itoa(i), 1, time.Hour)}
		}
	}
	results := s.TakeBatch(t.Context(), requests)
	server.ConfigSet(t.Context(), "maxmemory", "0")
	for i, r := range results {
		switch {
		case i%2 == 0 && (r.Err != nil || r.Decisions[0].Allowed):
			t.Errorf("request %d: %+v, want a denial", i, r)
		case i%2 == 1 && (r.Err == nil || !strings.Contains(r.Err.Error(), "OOM")):
			t.Errorf("request %d: %v, want the server's OOM", i, r.Err)
		case i%2 == 1 && charged(t, s, charge("zone", strconv.Itoa(i), 1, time.Hour)) != 0:
			t.Errorf("request %d is charged", i)
		}
	}
}
