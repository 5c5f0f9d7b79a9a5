package redis_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

func TestCluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	t.Run("OneSeed", func(t *testing.T) { testOneSeed(t, nodes) })
	open := func(t *testing.T) *redis.Store {
		return newStore(t, redis.Options{
			Addresses: []string{nodes[0].Addr}, Cluster: true,
			Report: func(err error) { t.Log("reported:", err) },
		})
	}
	t.Run("AllOrNothing", func(t *testing.T) { testClusterAllOrNothing(t, open(t)) })
	t.Run("Stream", func(t *testing.T) { testClusterStream(t, open(t), nodes) })
	t.Run("Packed", func(t *testing.T) { testClusterPacked(t, open(t), nodes) })
	t.Run("Rotation", func(t *testing.T) { testClusterRotation(t, nodes[0].Addr) })
	t.Run("Concurrent", func(t *testing.T) { testClusterConcurrent(t, open(t)) })
	t.Run("ScriptFlush", func(t *testing.T) { testClusterScriptFlush(t, open(t), nodes) })
	t.Run("Permissions", func(t *testing.T) { testClusterPermissions(t, nodes) })
	t.Run("ScriptAsked", func(t *testing.T) { testClusterScriptAsked(t, open(t), nodes) })
	t.Run("Denied", func(t *testing.T) { testClusterDenied(t, nodes) })
	t.Run("Neighbours", func(t *testing.T) { testClusterNeighbours(t, nodes) })
	t.Run("ManyNeighbours", func(t *testing.T) { testClusterManyNeighbours(t, nodes) })
	t.Run("Native", func(t *testing.T) { testClusterNative(t, open(t), nodes) })
	t.Run("Totals", func(t *testing.T) { testClusterTotals(t, nodes) })
	t.Run("GiveBack", func(t *testing.T) { testClusterGiveBack(t, nodes) })
	t.Run("Unknown", func(t *testing.T) { testClusterUnknown(t, open(t), nodes[1]) })
	t.Run("NodeDown", func(t *testing.T) { testClusterNodeDown(t, nodes) }) // the last: it does harm
}

// testOneSeed asks a node of a Cluster without saying that it is one.
func testOneSeed(t *testing.T, nodes []*redistest.Server) {
	s := newStore(t, redis.Options{Addresses: []string{nodes[0].Addr}})
	refused := 0
	for i := range 20 {
		_, err := s.Take(t.Context(), []window.Charge{charge("zone", fmt.Sprint(i), 1, time.Hour)})
		if err == nil {
			continue // this key lives here
		}
		refused++
		if !errors.Is(err, window.ErrUnavailable) || !strings.Contains(err.Error(), "add `cluster`") {
			t.Errorf("Take = %v, want advice to add `cluster`", err)
		}
	}
	if refused == 0 {
		t.Error("one node of three answers for every key")
	}
	// This is what Caddy logs.
	var cause error
	b := breaker.New(s, func(_ string, _ bool, err error) { cause = errors.Join(cause, err) }, nil)
	eventually(t, patience, "the breaker opens", func() bool {
		_, err := b.Take(t.Context(), []window.Charge{charge("zone", fmt.Sprint(time.Now()), 1, time.Hour)})
		return errors.Is(err, breaker.ErrOpen)
	})
	_ = b.Close()
	if cause == nil || !strings.Contains(cause.Error(), "the server is part of a Cluster: add `cluster` to the store: ") {
		t.Errorf("the breaker opened because of %v, want advice to add `cluster`", cause)
	}
	for range 5 {
		if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "add `cluster`") {
			t.Errorf("Ping = %v, want advice to add `cluster`, wherever its key is", err)
		}
	}
	_, err := s.Take(t.Context(), []window.Charge{charge("a", "a", 1, time.Hour), charge("b", "b", 1, time.Hour), charge("c", "c", 1, time.Hour)})
	if err == nil || !strings.Contains(err.Error(), "add `cluster`") {
		t.Errorf("Take of several zones = %v, want advice to add `cluster`", err)
	}
}

func testClusterAllOrNothing(t *testing.T, s *redis.Store) {
	full := charge("full", "key", 1, time.Hour)
	take(t, s, full)
	for i := range 20 {
		free, other := charge("free", fmt.Sprint(i), 5, time.Hour), charge("other", fmt.Sprint(i), 5, time.Hour)
		other.Algorithm, other.Cost = window.Slices{}, 2
		for _, charges := range [][]window.Charge{{full, free, other}, {free, other, full}, {free, full, other}} {
			ds := take(t, s, charges...)
			for j, c := range charges {
				if c.Zone == "full" && (ds[j].Allowed || ds[j].Remaining != 0 || ds[j].RetryAfter == 0) {
					t.Errorf("zone full: %+v, want a denial", ds[j])
				}
				if c.Zone != "full" && (!ds[j].Allowed || ds[j].Remaining != 5 || ds[j].RetryAfter != 0) {
					t.Errorf("zone %s: %+v, want 5 remaining", c.Zone, ds[j])
				}
			}
		}
		ds := take(t, s, free, other)
		if !window.Allowed(ds) || ds[0].Remaining != 4 || ds[1].Remaining != 3 {
			t.Errorf("Take after denials = %+v, want 4 and 3 remaining", ds)
		}
		peeked, err := s.Peek(t.Context(), []window.Charge{free, other, full})
		if err != nil || peeked[0].Remaining != 4 || peeked[1].Remaining != 3 || peeked[2].Remaining != 0 {
			t.Errorf("Peek = %+v, %v, want 4, 3 and 0 remaining", peeked, err)
		}
		for _, c := range []window.Charge{free, other} {
			if err := s.Reset(t.Context(), c); err != nil {
				t.Error(err)
			}
			if err := s.ChargeMore(t.Context(), c, 3); err != nil {
				t.Error(err)
			}
		}
		if ds := take(t, s, free, other); ds[0].Remaining != 1 || ds[1].Remaining != 0 {
			t.Errorf("Take after Reset and ChargeMore = %+v, want 1 and 0 remaining", ds)
		}
	}
}

// testClusterStream holds that no entry is left of a request that another zone
// denied, and that no other's goes.
func testClusterStream(t *testing.T, s *redis.Store, nodes []*redistest.Server) {
	full := charge("full", "key", 1, time.Hour)
	take(t, s, full)
	parallel(8, func(i int) {
		for n := range 20 {
			c := charge("audit", "key", 1000, time.Hour)
			c.Algorithm, c.Fields = window.Stream{}, []string{"user", fmt.Sprint(i, "-", n)}
			charges := []window.Charge{c}
			if n%2 == 0 {
				charges = append(charges, full)
			}
			if _, err := s.Take(t.Context(), charges); err != nil {
				t.Error(err)
			}
		}
	})
	users := make(map[string]bool)
	for _, node := range nodes {
		for _, key := range keys(t, node.Client(t), "*:2-stream:audit:key") {
			entries, err := node.Client(t).XRange(t.Context(), key, "-", "+").Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				users[e.Values["user"].(string)] = true
			}
			if len(entries) != 80 {
				t.Errorf("%d entries, want 80: %v", len(entries), entries)
			}
		}
	}
	for i := range 8 {
		for n := range 20 {
			if user := fmt.Sprint(i, "-", n); users[user] != (n%2 == 1) {
				t.Errorf("%s is readable: %v, want only who was admitted", user, users[user])
			}
		}
	}
}

// testClusterPacked has the hashes of a zone on every node, and takes back what was
// charged there.
func testClusterPacked(t *testing.T, s *redis.Store, nodes []*redistest.Server) {
	full := charge("full", "packed", 1, time.Hour)
	take(t, s, full)
	for i := range 200 {
		one := packed("packed", fmt.Sprint(i), 1_000, 5, time.Hour)
		if ds := take(t, s, one, full); window.Allowed(ds) {
			t.Fatalf("Take = %+v, want a denial", ds)
		}
		if d := take(t, s, one)[0]; d.Remaining != 4 {
			t.Errorf("Take after a denial = %+v, want 4 remaining", d)
		}
	}
	for _, node := range nodes {
		if n := len(keys(t, node.Client(t), "*:2-pack-gcra:packed:21:*")); n == 0 || n == 21 {
			t.Errorf("%d hashes on a node, want some of 21", n)
		}
	}
}

// testClusterConcurrent asks for several zones from many callers: never over the
// limit of any, and in the end nothing is charged but what passed.
func testClusterConcurrent(t *testing.T, s *redis.Store) {
	const limit = 40
	var passed, failed atomic.Int64
	var perCaller [8]atomic.Int64
	shared := charge("shared", "key", limit, time.Hour)
	own := func(i int) window.Charge { return charge("own", fmt.Sprint(i), limit/4, time.Hour) }
	parallel(len(perCaller), func(i int) {
		for range 15 {
			results := s.TakeBatch(t.Context(), [][]window.Charge{{own(i), shared}, {shared, own(i)}})
			for _, r := range results {
				switch {
				case r.Err != nil:
					t.Errorf("Take: %v", r.Err)
				case window.Allowed(r.Decisions):
					passed.Add(1)
					perCaller[i].Add(1)
				default:
					failed.Add(1)
				}
			}
		}
	})
	if n := passed.Load(); n > limit || n == 0 || n+failed.Load() != 8*15*2 {
		t.Errorf("%d passed and %d failed, want %d passed at most", n, failed.Load(), limit)
	}
	look := func(c window.Charge) int64 {
		ds, err := s.Peek(t.Context(), []window.Charge{c})
		if err != nil {
			t.Fatal(err)
		}
		return ds[0].Remaining
	}
	if got, want := look(shared), limit-passed.Load(); got != want {
		t.Errorf("shared: %d remaining, want %d", got, want)
	}
	for i := range perCaller {
		if got, want := look(own(i)), limit/4-perCaller[i].Load(); got != want {
			t.Errorf("own %d: %d remaining, want %d", i, got, want)
		}
	}
	t.Logf("%d of %d passed, %d denied", passed.Load(), limit, failed.Load())
}

func testClusterScriptFlush(t *testing.T, s *redis.Store, nodes []*redistest.Server) {
	requests := make([][]window.Charge, 60)
	for i := range requests {
		requests[i] = []window.Charge{charge("flush", fmt.Sprint(i), 10, time.Hour), charge("flush too", fmt.Sprint(i), 10, time.Hour)}
	}
	for round := range int64(4) {
		if round > 0 { // one node, then the next
			if err := nodes[round-1].Client(t).ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for i, r := range s.TakeBatch(t.Context(), requests) {
			if r.Err != nil || !window.Allowed(r.Decisions) || r.Decisions[0].Remaining != 9-round || r.Decisions[1].Remaining != 9-round {
				t.Fatalf("round %d, result %d = %+v, want %d remaining", round, i, r, 9-round)
			}
		}
	}
}

// testClusterScriptAsked asks for a key of a slot that is on its way to a node that
// does not know the script. It gets the script, and is asked again as it has to be.
func testClusterScriptAsked(t *testing.T, s *redis.Store, nodes []*redistest.Server) {
	c := charge("asked", "key", 2, time.Minute)
	take(t, s, charge("asked", "another", 2, time.Minute)) // the client knows all nodes
	moved := moveSlot(t, nodes, s.String()[strings.LastIndexByte(s.String(), ' ')+1:]+":2-zset:asked:key")
	defer moved()
	for _, node := range nodes {
		if err := errors.Join(node.Client(t).ScriptFlush(t.Context()).Err(), node.Client(t).ConfigResetStat(t.Context()).Err()); err != nil {
			t.Fatal(err)
		}
	}
	if d := take(t, s, c)[0]; d.Remaining != 1 {
		t.Errorf("Take = %+v, want 1 remaining", d)
	}
	for _, node := range nodes {
		stats := node.Client(t).InfoMap(t.Context(), "errorstats")
		if n := stats.Item("Errorstats", "errorstat_MOVED"); n != "" {
			t.Errorf("a node has answered MOVED, %s, want ASK only", n)
		}
	}
}

// testClusterPermissions does everything as a user of few permissions, and meets
// a slot on its way to another node with them and without +asking.
func testClusterPermissions(t *testing.T, nodes []*redistest.Server) {
	setUser := func(permissions ...string) {
		t.Helper()
		for _, node := range nodes {
			args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~acl:*"}
			for _, p := range append(permissions, strings.Fields(redis.Permissions)...) {
				args = append(args, p)
			}
			if err := node.Client(t).Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := func() *redis.Store {
		return newStore(t, redis.Options{Addresses: []string{nodes[1].Addr}, Cluster: true, Prefix: "acl", Username: "limiter", Password: "secret"})
	}
	extra := strings.Fields(redis.ClusterPermissions)
	setUser(extra...)
	if err := everything(t, open()); err != nil {
		t.Error(err)
	}
	for _, node := range nodes {
		if stats := node.Client(t).Info(t.Context(), "commandstats").Val(); strings.Contains(stats, "cmdstat_command:") {
			t.Errorf("a node was asked for its commands, for which the client takes a time of its own")
		}
	}
	moved := moveSlot(t, nodes, "acl:2-zset:moved:key")
	defer moved()
	one := charge("moved", "key", 2, time.Minute)
	if d := take(t, open(), one)[0]; d.Remaining != 1 {
		t.Errorf("Take = %+v, want 1 remaining", d)
	}
	for i, p := range extra {
		setUser(slices.Delete(slices.Clone(extra), i, i+1)...)
		_, err := open().Take(t.Context(), []window.Charge{one})
		if err == nil || !strings.Contains(err.Error(), "lacks a permission") || !strings.Contains(err.Error(), p) {
			t.Errorf("without %s: Take = %v, want an error that names it", p, err)
		}
	}
}

// moveSlot begins to move the slot of a key that is not there to another node, so
// that its owner sends everyone there. The function that it returns gives up.
func moveSlot(t *testing.T, nodes []*redistest.Server, key string) func() {
	t.Helper()
	ctx := t.Context()
	slot := nodes[0].Client(t).ClusterKeySlot(ctx, key).Val()
	var from, to *redistest.Server
	for _, node := range nodes {
		if node.Client(t).Exists(ctx, key).Err() == nil {
			from = node
		} else {
			to = node
		}
	}
	set := func(node *redistest.Server, args ...any) {
		t.Helper()
		if err := node.Client(t).Do(ctx, append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	id := func(node *redistest.Server) any { return node.Client(t).Do(ctx, "CLUSTER", "MYID").Val() }
	set(to, "IMPORTING", id(from))
	set(from, "MIGRATING", id(to))
	return func() {
		for _, node := range []*redistest.Server{from, to} {
			set(node, "STABLE")
		}
	}
}

// testClusterNodeDown hangs a node: what the others were charged comes back, or
// was charged at most once.
func testClusterNodeDown(t *testing.T, nodes []*redistest.Server) {
	s := newStore(t, redis.Options{Addresses: []string{nodes[0].Addr, nodes[1].Addr}, Timeout: timeout, Prefix: "down"})
	for i := range 30 {
		warm(t, s, fmt.Sprint(i))
	}
	nodes[2].Stop()
	hung := 0
	requests := 0
	for range 30 {
		err := within(t, timeout, func() error {
			requests++
			key := fmt.Sprint(requests)
			_, err := s.Take(t.Context(), []window.Charge{countedCharge("a", key), countedCharge("b", key)})
			return err
		})
		if err != nil {
			hung++
			if !errors.Is(err, window.ErrUnavailable) {
				t.Errorf("Take = %v, want ErrUnavailable", err)
			}
		}
	}
	if hung == 0 {
		t.Error("no request needed the node that hangs")
	}
	nodes[2].Cont()
	eventually(t, patience, "the cluster is whole again", func() bool {
		for i := range 10 {
			if _, err := s.Take(t.Context(), []window.Charge{charge("awake", fmt.Sprint(i), 1000, time.Hour)}); err != nil {
				return false
			}
		}
		return true
	})
	patient := newStore(t, redis.Options{Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: "down"})
	for i := range requests {
		for _, zone := range []string{"a", "b"} {
			if n := charged(t, patient, countedCharge(zone, fmt.Sprint(i+1))); n > 1 {
				t.Errorf("zone %s, key %d: charged %d times, want once at most", zone, i+1, n)
			}
		}
	}
}
