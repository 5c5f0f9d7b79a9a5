package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/resp"
)

// held returns a charge that holds a unit.
func held(key string, limit int64) window.Charge {
	return window.Charge{Zone: "z", Key: key, Cost: 1, Algorithm: window.Concurrent{}, Policies: []window.Policy{{Limit: limit, Window: 15 * time.Second}}}
}

// all returns the charge that holds all units of a counter.
func all(c window.Charge) window.Charge {
	c.Cost = c.Policies[0].Limit
	return c
}

// holds reports whether a store was admitted to hold the units of a charge.
func holds(t *testing.T, s *redis.Store, c window.Charge) bool {
	t.Helper()
	return window.Allowed(take(t, s, c))
}

// frees gives the units of a charge back.
func frees(t *testing.T, s *redis.Store, c window.Charge) {
	t.Helper()
	if err := s.GiveBack(t.Context(), c, 0, c.Cost); err != nil {
		t.Error(err)
	}
}

// isFree waits until a store may hold all units of a counter, and gives them back.
func isFree(t *testing.T, s *redis.Store, c window.Charge) {
	t.Helper()
	eventually(t, patience, "all units are free", func() bool { return holds(t, s, all(c)) })
	frees(t, s, all(c))
}

func totalsOf(t *testing.T, s *redis.Store, c window.Charge) []engine.Total {
	t.Helper()
	totals, err := s.Engine().(engine.TotalsLister).Totals(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return totals
}

// TestTotalsTwoProcesses holds that two processes share a limit, that both are listed, and that one that is closed holds
// nothing at once.
func TestTotalsTwoProcesses(t *testing.T) {
	o := redis.Options{Prefix: freshPrefix("totals")}
	a, b := newStore(t, o), newStore(t, o)
	c := held("k", 3)
	for i, want := range []struct {
		store  *redis.Store
		passes bool
	}{{a, true}, {a, true}, {b, true}, {b, false}, {a, false}} {
		if got := holds(t, want.store, c); got != want.passes {
			t.Fatalf("take %d passes: %v", i, got)
		}
	}
	frees(t, a, c)
	if !holds(t, a, c) || holds(t, a, c) {
		t.Error("what a process gives back is not its own at once")
	}
	totals := totalsOf(t, b, c)
	if len(totals) != 2 || totals[0].Units+totals[1].Units != 3 || totals[0].Instance == totals[1].Instance || totals[0].Silent > patience {
		t.Errorf("Totals = %+v", totals)
	}
	frees(t, a, c)
	eventually(t, patience, "the other process hears of it", func() bool { return holds(t, b, c) })
	_ = b.Close()
	if !holds(t, a, c) || !holds(t, a, c) || holds(t, a, c) {
		t.Error("what a closed store held is not free")
	}
	if totals := totalsOf(t, a, c); len(totals) != 1 || totals[0].Units != 3 {
		t.Errorf("Totals = %+v, want one of 3", totals)
	}
	frees(t, b, c) // a handler that ends late
	if holds(t, a, c) {
		t.Error("a release after Close frees what another process holds")
	}
}

// TestTotalsReset holds that each process writes what it holds once a counter was reset.
func TestTotalsReset(t *testing.T) {
	s := newStore(t, redis.Options{})
	c := held("k", 3)
	holds(t, s, c)
	if err := s.Reset(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the total is back", func() bool { n := totalsOf(t, s, c); return len(n) == 1 && n[0].Units == 1 })
}

// TestTotalsReplyLost holds that units of a take without an answer are free once a total was counted, and that takes wait
// for that.
func TestTotalsReplyLost(t *testing.T) {
	p, prefix := startProxy(t), freshPrefix("totals")
	p.target.Store(&server.Addr)
	a, b := newStore(t, redis.Options{Addresses: []string{p.addr}, Prefix: prefix}), newStore(t, redis.Options{Prefix: prefix})
	warm(t, a, "warm")
	c := held("k", 3)
	p.cut.Store(true)
	_, err := a.Take(t.Context(), []window.Charge{c})
	wantUnknown(t, "a reply that is lost", true, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Take(ctx, []window.Charge{c}); !errors.Is(err, window.ErrUnavailable) || errors.Is(err, window.ErrUnknown) {
		t.Errorf("Take in doubt = %v, want ErrUnavailable, and that nothing was sent", err)
	}
	p.cut.Store(false)
	isFree(t, b, c)
	isFree(t, a, c)
}

// TestTotalsCallerGone holds that a request that passes once its caller has gone holds nothing.
func TestTotalsCallerGone(t *testing.T) {
	own := redistest.Start(t)
	o := redis.Options{Addresses: []string{own.Addr}, Prefix: freshPrefix("totals")}
	s, other := newStore(t, o), newStore(t, o)
	var warming sync.WaitGroup
	for i := range 20 { // so that there are two connections
		warming.Go(func() { warm(t, s, fmt.Sprint("warm", i)) })
	}
	warming.Wait()
	warm(t, other, "warm")
	own.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	callers.Go(func() { holds(t, s, held("first", 1)) })
	eventually(t, patience, "a call in flight", func() bool { n, _ := redis.Load(s); return n == 1 })
	gone := make(chan error, 1)
	time.Sleep(10 * time.Millisecond) // so that another batch follows
	callers.Go(func() {
		_, err := s.Take(ctx, []window.Charge{held("second", 3)})
		gone <- err
	})
	eventually(t, patience, "another call in flight", func() bool { n, waiting := redis.Load(s); return n == 2 && waiting == 0 })
	cancel()
	if err := <-gone; !errors.Is(err, window.ErrUnknown) {
		t.Errorf("Take = %v, want ErrUnknown", err)
	}
	own.Cont()
	callers.Wait()
	isFree(t, other, held("second", 3))
	if holds(t, other, held("first", 1)) {
		t.Error("the first request holds nothing")
	}
}

// TestTotalsTwoSecrets holds that units count under both names of a counter, until they are given back.
func TestTotalsTwoSecrets(t *testing.T) { testTotalsTwoSecrets(t, redis.Options{}) }

func testTotalsTwoSecrets(t *testing.T, o redis.Options) {
	open := func(current, former string) *redis.Store {
		o.KeySecret, o.FormerKeySecret = current, former
		return newStore(t, o)
	}
	o.Prefix = freshPrefix("totals")
	both, current, old := open(secret, former), open(secret, ""), open(former, "")
	c := held("k", 3)
	if !holds(t, both, c) || holds(t, current, all(c)) || holds(t, old, all(c)) {
		t.Error("a unit does not count under both names")
	}
	frees(t, both, c)
	isFree(t, current, c)
	isFree(t, old, c)
	eventually(t, patience, "nothing is held", func() bool { return len(totalsOf(t, current, c))+len(totalsOf(t, old, c)) == 0 })
	for _, full := range []*redis.Store{current, old} { // denied under one name, it may have passed under the other
		holds(t, full, all(c))
		if holds(t, both, c) {
			t.Error("the limit of one name does not hold")
		}
		frees(t, full, all(c))
		isFree(t, current, c)
		isFree(t, old, c)
	}
}

// testClusterTotals holds that units are given back that were charged on one node, while another denied.
func testClusterTotals(t *testing.T, nodes []*redistest.Server) {
	o := redis.Options{Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: freshPrefix("totals")}
	s, other := redis.AskAlways(newStore(t, o)), newStore(t, o)
	for i := range 20 {
		c, full := held(fmt.Sprint(i), 3), charge("full", fmt.Sprint(i), 1, time.Hour)
		take(t, s, full)
		if ds := take(t, s, all(c), full); window.Allowed(ds) || !ds[0].Allowed || ds[0].Remaining != 3 {
			t.Errorf("Take = %+v, want all of the first, and a denial", ds)
		}
		isFree(t, other, c)
		isFree(t, s, c)
	}
	testTotalsTwoSecrets(t, redis.Options{Addresses: o.Addresses, Cluster: true})
}

// TestTotalsFormat holds what is in a field: other builds read it.
func TestTotalsFormat(t *testing.T) {
	clock := windowtest.NewClock()
	o := redis.Options{Prefix: freshPrefix("totals"), Now: clock.Now}
	s, c, client := newStore(t, o), held("k", 5), server.Client(t)
	key := string(newNaming(o).AppendKey(nil, &c))
	// Message 300, exact 7, given 9, back 6, heard of at the start of the clock, for a lease of 15,000 ms, held since then.
	const field = "\xcd\x01\x2c\x07\x09\x06\xcf\x00\x00\x03\x46\x30\xb8\xa0\x00\xcd\x3a\x98\xcf\x00\x00\x03\x46\x30\xb8\xa0\x00"
	if err := client.HSet(t.Context(), key, "another", field).Err(); err != nil {
		t.Fatal(err)
	}
	clock.Add(1_000)
	if ds := take(t, s, c); !ds[0].Allowed || ds[0].Remaining != 1 {
		t.Errorf("beside 3 units of another process: %+v", ds)
	}
	want := engine.Total{Instance: "another", Units: 3, Age: time.Second, Silent: time.Second}
	if totals := totalsOf(t, s, c); len(totals) != 2 || !slices.Contains(totals, want) {
		t.Errorf("Totals = %+v, want %+v among two", totals, want)
	}
	all := client.HGetAll(t.Context(), key).Val()
	delete(all, "another")
	for name, own := range all {
		// A beat may have told the total since.
		if n, ok := resp.Integers(own); !ok || len(n) != 7 || n[0] < 1 || !slices.Equal(n[2:], []int64{1, 0, clock.Now(), 15_000, clock.Now()}) {
			t.Errorf("%s has %q: %v", name, own, n)
		}
	}
	clock.Add(14_000)
	if c.Cost = 4; !holds(t, s, c) {
		t.Error("the other process holds its units beyond its lease")
	}
}
