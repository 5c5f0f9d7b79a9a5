package redis_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// moving is a Cluster of two nodes, one of which is giving the slot of a key to the other.
type moving struct {
	*testing.T
	nodes    []*redistest.Server
	clients  []*goredis.Client
	ids      []any
	from, to int // nodes
	key      string
	slot     int64
}

func newMoving(t *testing.T) *moving {
	m := &moving{T: t, nodes: redistest.StartCluster(t, 2)}
	for _, node := range m.nodes {
		m.clients = append(m.clients, node.Client(t))
		m.ids = append(m.ids, node.Client(t).Do(t.Context(), "CLUSTER", "MYID").Val())
	}
	return m
}

// of picks the key that is about to move. Other keys go: one could be of the same slot.
func (m *moving) of(t *testing.T, key string) {
	m.T, m.key = t, key
	for _, c := range m.clients {
		if err := c.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	m.slot = m.clients[0].ClusterKeySlot(t.Context(), key).Val()
	m.from, m.to = 0, 1
	if m.clients[0].Exists(t.Context(), key).Err() != nil {
		m.from, m.to = 1, 0
	}
}

func (m *moving) set(node int, args ...any) {
	m.Helper()
	if err := m.clients[node].Do(m.Context(), append([]any{"CLUSTER", "SETSLOT", m.slot}, args...)...).Err(); err != nil {
		m.Fatal(err)
	}
}

// begin opens the slot. From now on the one node writes no key that it does not hold.
func (m *moving) begin() {
	m.set(m.to, "IMPORTING", m.ids[m.from])
	m.set(m.from, "MIGRATING", m.ids[m.to])
}

// move moves the key, if there is one.
func (m *moving) move() {
	m.Helper()
	host, port, _ := net.SplitHostPort(m.nodes[m.to].Addr)
	if err := m.clients[m.from].Migrate(m.Context(), host, port, m.key, 0, patience).Err(); err != nil {
		m.Fatal(err)
	}
}

// end gives the slot to the other node, and makes that the one which gives it away next.
func (m *moving) end() {
	m.set(m.to, "NODE", m.ids[m.to])
	m.set(m.from, "NODE", m.ids[m.to])
	m.from, m.to = m.to, m.from
}

// inSlots are algorithms, with options, whose keys are moved.
var inSlots = []struct {
	name string
	pack int64
	algo window.Algorithm
}{
	{"zset", 0, window.Zset{}},
	{"log", 0, window.Log{}},
	{"stream", 0, window.Stream{}},
	{"stream that keeps", 0, window.Stream{Keep: time.Minute}},
	{"slices", 0, window.Slices{Count: 10}},
	{"weighted slices", 0, window.Slices{Count: 10, Weighted: true}},
	{"adaptive slices", 0, window.Slices{Min: 10 * time.Millisecond, Max: time.Second}},
	{"packed slices", 1, window.Slices{Count: 3}},
	{"layers", 0, window.Layers{Coarse: 500 * time.Millisecond, Fine: 50 * time.Millisecond}},
	{"gcra", 0, window.GCRA{}},
	{"packed gcra", 1, window.GCRA{Burst: 30}},
}

// TestMovingSlots makes every call on a key in a slot that is being moved, before the key
// has gone, after it, and in between: each decides as the memory store does, so that not a
// unit is lost, nor charged twice.
func TestMovingSlots(t *testing.T) {
	m := newMoving(t)
	for _, test := range inSlots {
		t.Run(test.name, func(t *testing.T) {
			lone(t, m, test.algo, test.pack)
			for seed := range uint64(4) {
				walkSlot(t, m, test.algo, test.pack, seed)
			}
		})
	}
}

// lone gives back a part of the only units of a key, whose slot is being moved.
func lone(t *testing.T, m *moving, algo window.Algorithm, pack int64) {
	clock := windowtest.NewClock()
	o := redis.Options{Addresses: []string{m.nodes[0].Addr}, Cluster: true, Now: clock.Now, Prefix: freshPrefix("lone"), Timeout: patience}
	s := redis.AskAlways(newStore(t, o))
	one := charge("zone", "key", 30, 5*time.Second)
	one.Algorithm, one.Pack, one.Cost = algo, pack, 20
	m.of(t, string(newNaming(o).AppendKey(nil, &one)))
	take(t, s, one)
	m.begin()
	defer m.end()
	for back := int64(1); back <= 4; back++ {
		if err := s.GiveBack(t.Context(), one, clock.Now(), back); err != nil {
			t.Fatal(err)
		}
		if got, want := charged(t, s, one), 20-back*(back+1)/2; got != want {
			t.Fatalf("%d units after %d of the last were given back, want %d", got, back, want)
		}
	}
	m.move()
}

func walkSlot(t *testing.T, m *moving, algo window.Algorithm, pack int64, seed uint64) {
	clock, r := windowtest.NewClock(), rand.New(rand.NewPCG(seed, 9))
	o := redis.Options{Addresses: []string{m.nodes[0].Addr}, Cluster: true, Now: clock.Now, Prefix: freshPrefix("moving"), Timeout: patience}
	local := memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})
	defer func() { _ = local.Close() }()
	stores := [2]window.Store{local, redis.AskAlways(newStore(t, o))}
	one := charge("zone", "key", 400, 5*time.Second)
	one.Algorithm, one.Pack = algo, pack
	m.of(t, string(newNaming(o).AppendKey(nil, &one)))

	huge := seed == 3 // costs, so that running totals begin anew
	if huge {
		one.Policies[0].Limit = window.MaxProduct / 5_000
	}
	shorter := window.Policy{Limit: one.Policies[0].Limit / 2, Window: time.Second}
	var spent []int64
	var done []string
	ask := func(what string, f func(window.Store) ([]window.Decision, error)) []window.Decision {
		t.Helper()
		done = append(done, fmt.Sprintf("%d %s", clock.Now()-windowtest.Start, what))
		want, err := f(stores[0])
		if err != nil {
			t.Fatal(err)
		}
		got, err := f(stores[1])
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("seed %d: %+v, %v, want %+v; the last calls: %q", seed, got, err, want, done[max(0, len(done)-8):])
		}
		return got
	}
	steps := func() {
		for range 120 {
			c := one
			c.Cost = 1
			switch n := r.IntN(24); {
			case n < 4:
				c.Cost = 1 + r.Int64N(60)
				if huge {
					c.Cost <<= r.IntN(30)
				}
			case n < 6 && pack == 0:
				c.Policies = append(slices.Clone(c.Policies), shorter)
			case n < 9 && len(spent) > 0:
				at, back := spent[len(spent)-1-r.IntN(min(len(spent), 200))], 1+r.Int64N(4)
				if n == 8 {
					at, back = spent[len(spent)-1], window.MaxProduct // all of the newest
				}
				ask(fmt.Sprint("GiveBack ", at-windowtest.Start, " ", back), func(s window.Store) ([]window.Decision, error) { return nil, s.GiveBack(t.Context(), c, at, back) })
				continue
			case n == 9:
				more := 1 + r.Int64N(20)
				if huge {
					more <<= r.IntN(45)
				}
				ask(fmt.Sprint("ChargeMore ", more), func(s window.Store) ([]window.Decision, error) { return nil, s.ChargeMore(t.Context(), c, more) })
				continue
			case n == 10 && r.IntN(12) == 0:
				ask("Reset", func(s window.Store) ([]window.Decision, error) { return nil, s.Reset(t.Context(), c) })
				spent = nil
				continue
			case n == 11 && r.IntN(6) == 0:
				clock.Add(-r.Int64N(1_000))
			case n == 12 && r.IntN(12) == 0:
				clock.Add(r.Int64N(6_000))
			}
			clock.Add(r.Int64N(1 + r.Int64N(12)))
			ds := ask(fmt.Sprint("Take ", c.Cost), func(s window.Store) ([]window.Decision, error) { return s.Take(t.Context(), []window.Charge{c}) })
			if window.Allowed(ds) {
				spent = append(spent, ds[0].At)
			}
			ask("Peek", func(s window.Store) ([]window.Decision, error) { return s.Peek(t.Context(), []window.Charge{one}) })
		}
	}
	steps()
	for range 2 {
		m.begin()
		steps()
		m.move()
		steps()
		m.end()
		steps()
	}
}

// TestGiveBackWithoutMemory gives back on a server that has no memory left: what cannot be
// written changes nothing, and of the rest not a unit is lost.
func TestGiveBackWithoutMemory(t *testing.T) {
	own := redistest.Start(t)
	c := own.Client(t)
	for _, test := range inSlots {
		for _, n := range []int64{1, 40, 400} { // requests
			clock := windowtest.NewClock()
			s := redis.AskAlways(newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now, Prefix: freshPrefix("memory")}))
			one := charge("zone", "key", 100_000, 5*time.Second)
			one.Algorithm, one.Pack, one.Cost = test.algo, test.pack, 20
			var first int64
			for i := range n {
				clock.Add(1)
				if at := take(t, s, one)[0].At; i == n/2 {
					first = at
				}
			}
			before := charged(t, s, one)
			c.ConfigSet(t.Context(), "maxmemory", "1")
			for _, at := range []int64{first, clock.Now()} {
				err := s.GiveBack(t.Context(), one, at, 3)
				got := charged(t, s, one)
				if _, isGCRA := test.algo.(window.GCRA); err != nil && got != before || err == nil && got != before-3 && !isGCRA {
					t.Errorf("%s of %d: GiveBack = %v, and %d units are left of %d", test.name, n, err, got, before)
				}
				before = got
			}
			c.ConfigSet(t.Context(), "maxmemory", "0")
		}
	}
}
