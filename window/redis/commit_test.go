package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// takeOff sends one request per flight, each by itself, to a server that does not answer.
func takeOff(t *testing.T, s *redis.Store, send func(i int)) {
	t.Helper()
	redis.Near(s)
	for i := range redis.Flights {
		send(i)
		eventually(t, patience, "a flight", func() bool { return redis.Flying(s) == i+1 && redis.Waiting(s) == 0 })
		time.Sleep(2 * redis.Late) // the next one does not wait for a crowd
	}
}

// occupy stops the server and has every flight wait for it. The function that it
// returns has the server answer, and returns when the flights are back.
func occupy(t *testing.T, own *redistest.Server, s *redis.Store) (end func()) {
	t.Helper()
	own.Stop()
	var busy sync.WaitGroup
	takeOff(t, s, func(i int) {
		busy.Go(func() { _, _ = s.Take(t.Context(), []window.Charge{charge("busy", strconv.Itoa(i), 1, time.Hour)}) })
	})
	return func() {
		own.Cont()
		busy.Wait()
	}
}

// crowd takes n requests at once while the server does not answer, has it answer
// when all wait, and returns the results.
func crowd(t *testing.T, own *redistest.Server, s *redis.Store, n int, request func(i int) []window.Charge) []window.Result {
	t.Helper()
	results := make([]window.Result, n)
	end := occupy(t, own, s)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { results[i].Decisions, results[i].Err = s.Take(t.Context(), request(i)) })
	}
	eventually(t, patience, "all wait", func() bool { return redis.Waiting(s) == n })
	end()
	group.Wait()
	return results
}

// TestTogether has a thousand requests come while the server is busy: they go in as
// few runs of the script as they fit in, and each gets an answer of its own.
func TestTogether(t *testing.T) {
	own := redistest.Start(t)
	server := own.Client(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	warm(t, s, "key")
	server.ConfigResetStat(t.Context())
	const n, limit = 1_000, 300
	results := crowd(t, own, s, n, func(i int) []window.Charge {
		zone := "zone " + strconv.Itoa(i%2)
		return []window.Charge{charge(zone, "key", limit, time.Hour), charge("other", strconv.Itoa(i), 1, time.Hour)}
	})
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
	calls, least := commandCalls(t, server, "evalsha"), 2*n/redis.BatchWeight
	if most := 2*redis.Flights + least + 1; calls < least || calls > most { // the last ones may be halved
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
		each := max(1, redis.BatchWeight/test.weight)
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

// TestTogetherAlike has requests for a unit come at once: the number that one run of the
// script takes, and up to two fewer or more.
func TestTogetherAlike(t *testing.T) {
	s := newStore(t, redis.Options{})
	for n := redis.BatchWeight - 2; n <= redis.BatchWeight+2; n++ {
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

// TestTogetherButOne has a request fail in the middle of others.
func TestTogetherButOne(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "p"})
	warm(t, s, "key")
	own.Client(t).Set(t.Context(), "p:1-zset:zone:5", "no set", 0)
	for i, r := range crowd(t, own, s, 10, func(i int) []window.Charge {
		return []window.Charge{charge("first", strconv.Itoa(i), 3, time.Hour), charge("zone", strconv.Itoa(i), 3, time.Hour)}
	}) {
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
	results := crowd(t, own, s, 20, func(i int) []window.Charge {
		if i%2 == 0 {
			return []window.Charge{full}
		}
		return []window.Charge{charge("zone", strconv.Itoa(i), 1, time.Hour)}
	})
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

// TestLeft has callers go while their requests wait: those are not sent.
func TestLeft(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	warm(t, s, "key")
	end := occupy(t, own, s)
	one := func(i int) []window.Charge { return []window.Charge{countedCharge("zone", strconv.Itoa(i))} }
	var leaving sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 10 {
		leaving.Go(func() {
			if _, err := s.Take(ctx, one(100+i)); !errors.Is(err, context.Canceled) || !errors.Is(err, window.ErrUnavailable) {
				t.Errorf("Take = %v, want Canceled and ErrUnavailable", err)
			}
		})
	}
	eventually(t, patience, "10 that wait", func() bool { return redis.Waiting(s) == 10 })
	cancel()
	leaving.Wait() // though the server still hangs
	end()
	for i := range 10 {
		if n := charged(t, s, one(100 + i)[0]); n != 0 {
			t.Errorf("a request whose caller had gone was charged %d", n)
		}
	}
	eventually(t, patience, "nothing under way", func() bool { return redis.Flying(s) == 0 })
}

// TestSentOrNot has callers go whose requests were sent, and one whose request still
// waits: only of the first it is not known whether they were charged. What they had
// room for is not written to once they have gone.
func TestSentOrNot(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: 2 * time.Second}) // for the one who flies alone
	warm(t, s, "key")
	own.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	rooms := make([]window.Decision, redis.Flights+1)
	take := func(i int, sent bool) {
		callers.Go(func() {
			_, err := s.TakeInto(ctx, rooms[i:i+1], []window.Charge{charge("zone", strconv.Itoa(i), 1, time.Hour)})
			if !errors.Is(err, context.Canceled) || errors.Is(err, window.ErrUnknown) != sent {
				t.Errorf("Take = %v; want Canceled, and ErrUnknown: %t", err, sent)
			}
		})
	}
	takeOff(t, s, func(i int) { take(i, true) })
	take(redis.Flights, false)
	eventually(t, patience, "one who waits", func() bool { return redis.Waiting(s) == 1 })
	cancel()
	callers.Wait()
	clear(rooms)
	own.Cont()
	eventually(t, patience, "nothing under way", func() bool { return redis.Flying(s) == 0 })
	for i := range rooms {
		if rooms[i] != (window.Decision{}) {
			t.Errorf("request %d: %+v is written to the room of one who has gone", i, rooms[i])
		}
	}
}

// TestQueueIsBounded has more requests wait than there is room for: the last get an
// error at once.
func TestQueueIsBounded(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	warm(t, s, "key")
	end := occupy(t, own, s)
	const more = 10
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	full := make(chan error, redis.QueueLength+more)
	for range cap(full) {
		group.Go(func() {
			if _, err := s.Take(ctx, []window.Charge{charge("zone", "key", 1, time.Hour)}); errors.Is(err, window.ErrBusy) {
				full <- err
			}
		})
	}
	for range more {
		select {
		case err := <-full:
			if !errors.Is(err, window.ErrUnavailable) {
				t.Errorf("Take = %v, want ErrUnavailable in its chain", err)
			}
		case <-time.After(patience):
			t.Fatal("no error of a full queue")
		}
	}
	cancel()
	end()
	group.Wait()
	if len(full) != 0 {
		t.Errorf("%d more were refused", len(full))
	}
}

// TestDeadlines has a server hang: whoever waits, waits for the timeout and no
// longer, whenever it came.
func TestDeadlines(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: timeout})
	warm(t, s, "key")
	own.Stop()
	parallel(32, func(i int) {
		for range 5 {
			if err := timed(t, func() error {
				_, err := s.Take(t.Context(), []window.Charge{charge("zone", strconv.Itoa(i), 1, time.Hour)})
				return err
			}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Take = %v, want DeadlineExceeded", err)
			}
		}
	})
	own.Cont()
}

// TestCrowd has a second flight take off when enough wait for the first.
func TestCrowd(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	warm(t, s, "key")
	eventually(t, patience, "nothing under way", func() bool { return redis.Flying(s) == 0 })
	own.Stop()
	var group sync.WaitGroup
	send := func() {
		group.Go(func() { _, _ = s.Take(t.Context(), []window.Charge{charge("zone", "key", 1, time.Hour)}) })
	}
	send()
	eventually(t, patience, "a flight", func() bool { return redis.Flying(s) == 1 && redis.Waiting(s) == 0 })
	redis.Near(s)
	redis.NeverLate(s)
	for range redis.Crowd - 1 {
		send()
	}
	eventually(t, patience, "all but one of a crowd", func() bool { return redis.Waiting(s) == redis.Crowd-1 })
	if n := redis.Flying(s); n != 1 {
		t.Errorf("%d flights without a crowd, want 1", n)
	}
	send()
	eventually(t, patience, "two flights", func() bool { return redis.Flying(s) == 2 && redis.Waiting(s) == 0 })
	own.Cont()
	group.Wait()
	eventually(t, patience, "nothing under way", func() bool { return redis.Flying(s) == 0 })
}

// TestFlightsAreAlike holds the size of the next batch, when a batch is in flight and a crowd
// waits: no smaller than that batch, and at most half of all, as long as the rest is a crowd.
func TestFlightsAreAlike(t *testing.T) {
	type flight struct {
		size int
		land chan struct{}
	}
	landings, end := make(chan flight), make(chan struct{})
	addr := fakeServer(t, func(args []string) string {
		if !strings.EqualFold(args[0], "evalsha") {
			return "-ERR not expected"
		}
		n, _ := strconv.Atoi(args[2])
		f := flight{n, make(chan struct{})}
		select {
		case landings <- f:
		case <-end:
		}
		select {
		case <-f.land:
		case <-end:
		}
		return fmt.Sprintf("*%d\r\n:1", n+1) + strings.Repeat("\r\n:1", n)
	})
	s := newStore(t, redis.Options{Addresses: []string{addr}, Timeout: 10 * patience})
	var group sync.WaitGroup
	defer group.Wait()
	defer close(end)
	send := func(ctx context.Context, n int) {
		for i := range n {
			group.Go(func() { _, _ = s.Take(ctx, []window.Charge{charge("zone", strconv.Itoa(i), 5, time.Hour)}) })
		}
	}
	flies := func(want int) flight {
		t.Helper()
		select {
		case f := <-landings:
			if f.size != want {
				t.Fatalf("%d fly, want %d", f.size, want)
			}
			redis.Near(s)
			redis.NeverLate(s)
			return f
		case <-time.After(patience):
			t.Fatalf("nobody flies, want %d", want)
			panic("unreachable")
		}
	}
	waits := func(flying, waiting int) {
		t.Helper()
		eventually(t, patience, fmt.Sprintf("%d flights while %d wait", flying, waiting), func() bool {
			return redis.Flying(s) == flying && redis.Waiting(s) == waiting
		})
	}
	const crowd = redis.Crowd

	send(t.Context(), 1)
	one := flies(1)
	send(t.Context(), crowd-1)
	waits(1, crowd-1)
	send(t.Context(), 1)
	few := flies(crowd)
	send(t.Context(), 3*crowd)
	waits(2, 3*crowd)
	close(one.land)
	many := flies(2 * crowd) // half of 4, and one stays
	waits(2, crowd)
	close(few.land)
	waits(1, crowd) // fewer than fly
	send(t.Context(), crowd)
	more := flies(2 * crowd)

	gone, cancel := context.WithCancel(t.Context())
	send(gone, 4*crowd)
	waits(2, 4*crowd)
	cancel()
	send(t.Context(), crowd)
	waits(2, 5*crowd)
	close(many.land)
	rest := flies(crowd) // who has gone takes no place
	close(more.land)
	close(rest.land)
	waits(0, 0)
}
