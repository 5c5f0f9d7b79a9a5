package redis_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// reports collects what a store reports.
type reports struct {
	mu  sync.Mutex
	all []error
}

func (r *reports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, err)
}

func (r *reports) list() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// TestGiveBack denies a request by one zone, and changes the server before another
// zone is given back what it was charged.
func TestGiveBack(t *testing.T) {
	p := startProxy(t)
	own := startBehind(t, p)
	c := own.Client(t)
	var told reports
	clock := windowtest.NewClock() // does not move: all is spent in the same millisecond
	s := newStore(t, redis.Options{Addresses: []string{p.addr}, Cluster: true, Prefix: "back", Report: told.add, Now: clock.Now})
	denied := func(key string, onReply func()) {
		t.Helper()
		p.onReply.Store(&onReply)
		if ds := take(t, s, countedCharge("free", key), charge("full", key, 0, time.Hour)); window.Allowed(ds) {
			t.Errorf("Take = %+v, want a denial", ds)
		}
	}
	warm(t, s, "key")

	denied("refused", func() { // the units are not taken back, and may be tried again
		if err := c.Do(t.Context(), "CLUSTER", "DELSLOTSRANGE", 0, 16383).Err(); err != nil {
			t.Error(err)
		}
	})
	if err := own.OwnAllSlots(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the units are given back", func() bool { return charged(t, s, countedCharge("free", "refused")) == 0 })
	if errs := told.list(); len(errs) > 0 {
		t.Errorf("reported: %v, want nothing", errs)
	}

	// It is unknown whether they are, and another attempt might take from others.
	take(t, s, countedCharge("free", "secret"))
	denied("secret", func() { p.cut.Store(true) })
	eventually(t, patience, "a report", func() bool { return len(told.list()) > 0 })
	p.cut.Store(false)
	errs := told.list()
	if err := errs[0]; len(errs) != 1 || !errors.Is(err, window.ErrUnavailable) ||
		!strings.Contains(err.Error(), `zone "free": 1 units`) || strings.Contains(err.Error(), "secret") {
		t.Errorf("reported: %v, want one error about zone free, without the key", errs)
	}
	eventually(t, patience, "a decision", func() bool { return s.Ping(t.Context()) == nil })
	if n := charged(t, s, countedCharge("free", "secret")); n != 1 {
		t.Errorf("%d units are charged, want that of the request that passed", n)
	}
}

// TestGiveBackTogether has many requests denied by the one zone that all share: what the
// other charged them is given back in one round trip, not in one for each.
func TestGiveBackTogether(t *testing.T) {
	p := startProxy(t)
	startBehind(t, p)
	s := newStore(t, redis.Options{Addresses: []string{p.addr}, Cluster: true, Prefix: "together"})
	requests := make([][]window.Charge, 30)
	for i := range requests {
		requests[i] = []window.Charge{countedCharge("own", fmt.Sprint(i)), charge("all", "key", 0, time.Hour)}
	}
	warm(t, s, "key")
	before := p.turns.Load()
	for i, r := range s.TakeBatch(t.Context(), requests) {
		if r.Err != nil || window.Allowed(r.Decisions) || r.Decisions[0].Remaining != r.Decisions[0].Limit {
			t.Errorf("request %d: %+v, want a denial that leaves all to its own zone", i, r)
		}
	}
	if turns := p.turns.Load() - before; turns > 2 {
		t.Errorf("%d round trips, want 2", turns)
	}
	for _, charges := range requests {
		if n := charged(t, s, charges[0]); n != 0 {
			t.Errorf("%d units of key %s stay charged", n, charges[0].Key)
		}
	}
}

// testClusterGiveBack hangs a node while a request asks it and another one: the
// other's units come back, though the request has no time left to see to it.
func testClusterGiveBack(t *testing.T, nodes []*redistest.Server) {
	var told reports
	s := newStore(t, redis.Options{Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: "hangs", Timeout: timeout, Report: told.add})
	on := func(node *redistest.Server) window.Charge {
		for i := range 100 {
			c := countedCharge("zone", fmt.Sprint(i))
			if node.Client(t).Exists(t.Context(), "hangs:2-slices:zone:"+c.Key).Err() == nil {
				return c
			}
		}
		t.Fatal("none of 100 keys is on the node")
		return window.Charge{}
	}
	lives, hangs := on(nodes[0]), on(nodes[2])
	for i := range 30 {
		warm(t, s, fmt.Sprint(i))
	}
	nodes[2].Stop()
	defer nodes[2].Cont()
	timed(t, func() error { _, err := s.Take(t.Context(), []window.Charge{lives, hangs}); return err })
	eventually(t, patience, "the units are given back", func() bool {
		ds, err := s.Peek(t.Context(), []window.Charge{lives})
		return err == nil && ds[0].Remaining == ds[0].Limit
	})
	nodes[2].Cont()
	if errs := told.list(); len(errs) > 0 {
		t.Errorf("reported: %v, want nothing", errs)
	}
}

// TestLeaseReported ends a lease while the server is away.
func TestLeaseReported(t *testing.T) {
	own := redistest.Start(t)
	var told reports
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: timeout, Report: told.add})
	c := charge("leased", "secret", 1000, time.Minute)
	c.Lease = window.Lease{Units: 100, TTL: 30 * time.Second}
	for redis.Leases(s).Left() == 0 {
		take(t, s, c)
	}
	own.Kill()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	errs := told.list()
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), `zone "leased": a lease of`) || strings.Contains(errs[0].Error(), "secret") {
		t.Errorf("reported: %v, want one error about zone leased, without the key", errs)
	}
}

// TestLeaseLost loses the reply to a lease: its units may be booked, and no process has them.
func TestLeaseLost(t *testing.T) {
	p := startProxy(t)
	p.target.Store(&redistest.Start(t).Addr)
	var told reports
	s := newStore(t, redis.Options{Addresses: []string{p.addr}, Timeout: patience, Report: told.add})
	c := leased(charge("leased", "secret", 1000, 10*time.Minute), 100, time.Minute)
	takeAhead(t, s, c, 1)
	p.cut.Store(true)
	var err error
	for err == nil {
		_, err = s.Take(t.Context(), []window.Charge{c})
	}
	p.cut.Store(false)
	if !errors.Is(err, window.ErrUnknown) {
		t.Errorf("Take = %v, want ErrUnknown", err)
	}
	for _, err := range told.list() {
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("reported with the key: %v", err)
		}
	}
	if !slices.ContainsFunc(told.list(), func(err error) bool {
		return strings.Contains(err.Error(), `zone "leased": a lease of`) && strings.Contains(err.Error(), "may stay booked")
	}) {
		t.Errorf("reported: %v, want the lease that may stay booked", told.list())
	}
}
