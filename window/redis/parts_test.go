package redis_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestParts asks for the parts of a single server, and of a Cluster, and pings them.
func TestParts(t *testing.T) {
	single := newStore(t, redis.Options{Addresses: []string{server.Addr}})
	if parts := redis.Full(single).Parts([]window.Charge{charge("zone", "key", 1, time.Hour)}, nil); !slices.Equal(parts, []string{""}) {
		t.Errorf("Parts of a single server = %q, want one without a name", parts)
	}
	nodes := redistest.StartCluster(t, 3)
	s := newStore(t, redis.Options{Addresses: []string{nodes[0].Addr, nodes[1].Addr}, Timeout: timeout, Prefix: "parts"})
	on := make(map[string]window.Charge) // a charge on each node
	if parts := redis.Full(s).Parts([]window.Charge{charge("zone", "key", 1, time.Hour)}, nil); !slices.Equal(parts, []string{""}) {
		t.Errorf("Parts before anything was asked = %q, want one without a name", parts)
	}
	warm(t, s, "key")
	for i := range 100 {
		c := charge("zone", fmt.Sprint(i), 1000, time.Hour)
		parts := redis.Full(s).Parts([]window.Charge{c, c}, nil)
		if len(parts) != 1 {
			t.Fatalf("Parts = %q, want one", parts)
		}
		on[parts[0]] = c
	}
	var all []window.Charge
	for _, node := range nodes {
		if err := redis.Full(s).PingPart(t.Context(), node.Addr); err != nil {
			t.Errorf("PingPart = %v", err)
		}
		all = append(all, on[node.Addr])
		if redis.Doubt(s, packed("zone", "key", 10, 5, time.Hour)); all[len(all)-1].Algorithm == nil {
			t.Fatal("none of 100 keys is on the node")
		}
	}
	if parts := redis.Full(s).Parts(all, nil); len(parts) != 3 {
		t.Errorf("Parts = %q, want all nodes", parts)
	}
	if err := redis.Full(s).PingPart(t.Context(), "127.0.0.1:1"); err != nil {
		t.Errorf("PingPart of a node that is not there = %v, want nil: no counter needs it", err)
	}

	nodes[2].Stop()
	hung := on[nodes[2].Addr]
	for range 3 {
		_, err := s.Take(t.Context(), all)
		var of *engine.PartError
		if !errors.As(err, &of) || !slices.Equal(of.Parts, []string{nodes[2].Addr}) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Take = %v of %+v, want an error of the node that hangs", err, of)
		}
	}
	if err := redis.Full(s).PingPart(t.Context(), nodes[2].Addr); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("PingPart of the node that hangs = %v, want ErrUnavailable", err)
	}
	for _, node := range nodes[:2] {
		if err := redis.Full(s).PingPart(t.Context(), node.Addr); err != nil {
			t.Errorf("PingPart of another node = %v", err)
		}
	}
	nodes[2].Cont()
	// Where its keys go, the ping goes.
	eventually(t, patience, "the node answers", func() bool { return redis.Full(s).PingPart(t.Context(), nodes[2].Addr) == nil })
	take(t, newStore(t, redis.Options{Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: "parts"}), hung)
}

// TestPartMoves makes another node take over what a node held that is away.
func TestPartMoves(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	replica := redistest.AddReplica(t, nil, nodes, nodes[2])
	s := newStore(t, redis.Options{Addresses: []string{nodes[0].Addr, nodes[1].Addr}, Timeout: timeout})
	for i := range 30 {
		warm(t, s, fmt.Sprint(i))
	}
	nodes[2].Kill()
	if err := redis.Full(s).PingPart(t.Context(), nodes[2].Addr); err == nil {
		t.Error("PingPart = nil, want an error of the node that is gone")
	}
	eventually(t, 3*patience, "the replica answers in place of the node", func() bool {
		return redis.Full(s).PingPart(t.Context(), nodes[2].Addr) == nil
	})
	if !replica.IsMaster(t) {
		t.Error("the replica has not become a master")
	}
	for i := range 30 {
		if parts := redis.Full(s).Parts([]window.Charge{charge("zone", fmt.Sprint(i), 1, time.Hour)}, nil); slices.Contains(parts, nodes[2].Addr) {
			t.Errorf("Parts = %q, want no node that is gone", parts)
		}
	}
}

// TestClusterPingGivesNothingBack has one of several pings fail: the units of the others are
// left to expire. To give them back is a call that may fail, of which no caller could make
// anything.
func TestClusterPingGivesNothingBack(t *testing.T) {
	node := redistest.StartCluster(t, 1)[0]
	var told reports
	s := newStore(t, redis.Options{Addresses: []string{node.Addr}, Cluster: true, Prefix: "ping", Report: told.add, Timeout: timeout})
	warm(t, s, "key")
	for _, algo := range algorithms {
		c := charge("zone", "key", 1, time.Hour)
		c.Algorithm = algo
		redis.Doubt(s, c)
	}
	node.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "-set")
	part := redis.Full(s).Parts([]window.Charge{charge("zone", "key", 1, time.Hour)}, nil)[0]
	before, pings := evalshas(t, []*redistest.Server{node}), 0
	for _, ping := range []func() error{
		func() error { return s.Ping(t.Context()) },
		func() error { return redis.Full(s).PingPart(t.Context(), part) },
	} {
		for range 3 {
			if err := ping(); err == nil || !strings.Contains(err.Error(), "lacks a permission") {
				t.Errorf("ping = %v, want an error that names permissions", err)
			}
			pings++
		}
	}
	time.Sleep(2 * timeout) // in which units would be given back
	if n := evalshas(t, []*redistest.Server{node}) - before; n != pings*len(algorithms) {
		t.Errorf("%d script calls for %d pings of %d kinds, want one for each", n, pings, len(algorithms))
	}
	node.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "+@all")
	if err := errors.Join(redis.Full(s).PingPart(t.Context(), part), s.Ping(t.Context())); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil { // all is given back, or reported
		t.Error(err)
	}
	if errs := told.list(); len(errs) > 0 {
		t.Errorf("reported: %v, want nothing", errs)
	}
}

// TestNodesThatLeaveAreForgotten makes a replica take the place of a master, as when a pod is replaced: what the store has for the
// former one is dropped, and a request that waits there is decided on.
func TestNodesThatLeaveAreForgotten(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	replica := redistest.AddReplica(t, nil, nodes, nodes[0])
	s := newStore(t, redis.Options{Addresses: []string{nodes[1].Addr, nodes[2].Addr}, Timeout: timeout, Prefix: "leave"})
	var onFirst window.Charge // which the node decides on that leaves
	ask := func() {
		for i := range 30 {
			warm(t, s, fmt.Sprint(i))
			if c := charge("zone", fmt.Sprint(i), 1000, time.Hour); redis.Full(s).Parts([]window.Charge{c}, nil)[0] == nodes[0].Addr {
				onFirst = c
			}
		}
	}
	ask()
	redis.LackThrottle(s, nodes[0].Addr)
	redis.Doubt(s, onFirst)
	before := redis.NodesOf(s)
	if len(before) != 3 || before[nodes[0].Addr] == nil {
		t.Fatalf("nodes %v, want the three masters", before)
	}
	if err := replica.Client(t).Do(t.Context(), "CLUSTER", "FAILOVER", "TAKEOVER").Err(); err != nil {
		t.Fatal(err)
	}
	want := []string{nodes[1].Addr, nodes[2].Addr, replica.Addr}
	slices.Sort(want)
	eventually(t, 3*patience, "the nodes are those that hold slots", func() bool {
		ask()
		_, err := redis.Full(s).Describe(t.Context())
		return err == nil && slices.Equal(slices.Sorted(maps.Keys(redis.NodesOf(s))), want)
	})
	if redis.Full(s).HasPart(nodes[0].Addr) || !redis.Full(s).HasPart(replica.Addr) {
		t.Error("the store does not know which nodes hold slots")
	}
	if r := before[nodes[0].Addr].Take(t.Context(), []window.Charge{onFirst}, nil); r.Err != nil || !window.Allowed(r.Decisions) {
		t.Errorf("a request that waits for the node that has left: %+v", r)
	}
}

// TestNewNodeHasOthersForgotten asks for no description: the first node that is new is enough.
func TestNewNodeHasOthersForgotten(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	s := newStore(t, redis.Options{Addresses: []string{nodes[1].Addr, nodes[2].Addr}, Timeout: timeout, Prefix: "new"})
	for i := range 30 {
		warm(t, s, fmt.Sprint(i))
	}
	redis.LackThrottle(s, "10.0.0.1:6379") // which has left
	added := redistest.AddNode(t, nil, nodes)
	slots := make([]int, 300)
	for i := range slots {
		slots[i] = i
	}
	redistest.MoveSlots(t, append(nodes, added), nodes[0], added, slots...)
	eventually(t, 3*patience, "the node that has left is forgotten", func() bool {
		for i := range 500 { // one of them is redirected to the new node
			warm(t, s, fmt.Sprint(i))
		}
		_, ok := redis.NodesOf(s)["10.0.0.1:6379"]
		return !ok
	})
}
