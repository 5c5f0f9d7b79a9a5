package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestSoakCluster is TestSoak on a Cluster of three masters with replicas, whose slots move, and which change places.
func TestSoakCluster(t *testing.T) {
	w := &world{T: t, servers: redistest.StartCluster(t, 3), faults: append(slices.Clone(anywhere), fault{"slots move", moveSlots}, fault{"replica takes over", takeOver})}
	w.store = "address " + addresses(w.servers)
	for _, master := range slices.Clone(w.servers) {
		w.servers = append(w.servers, redistest.AddReplica(t, nil, w.servers, master))
	}
	for _, s := range w.servers { // or a master that hangs would lose what no replica has yet
		w.command(s, "CONFIG", "SET", "cluster-replica-no-failover", "yes")
	}
	w.startCaddys()
	w.soak(*length)
}

// masters returns the servers of a Cluster that take writes, once all servers are well and agree who holds which slots. A replica
// that took over before would claim slots that have moved.
func (w *world) masters() []*redistest.Server {
	var views []string
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		views = nil
		for _, s := range w.servers {
			views = append(views, w.view(s))
		}
		if len(slices.Compact(slices.Clone(views))) == 1 && views[0] != "" {
			break
		}
		if time.Since(start) > time.Minute {
			w.Fatalf("the servers of the Cluster do not agree:\n%s", strings.Join(views, "\n\n"))
		}
	}
	return slices.DeleteFunc(slices.Clone(w.servers), func(s *redistest.Server) bool { return !s.IsMaster(w.T) })
}

// view returns which masters a server of a Cluster knows, with their slots; nothing if it is not well.
func (w *world) view(s *redistest.Server) string {
	ctx, c := context.Background(), s.Client(w.T)
	if info, _ := c.ClusterInfo(ctx).Result(); !strings.Contains(info, "cluster_state:ok") {
		return ""
	}
	var all []string
	nodes, _ := c.ClusterNodes(ctx).Result()
	for node := range strings.Lines(nodes) {
		if f := strings.Fields(node); strings.Contains(f[2], "master") {
			all = append(all, f[0]+" "+strings.Join(f[8:], " "))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// takeOver makes a replica of a Cluster the master, which loses nothing.
func takeOver(w *world, r *rand.Rand) func() {
	masters := w.masters()
	replicas := slices.DeleteFunc(slices.Clone(w.servers), func(s *redistest.Server) bool { return slices.Contains(masters, s) })
	replica := replicas[r.IntN(len(replicas))]
	caddyrun.Eventually(w.T, time.Minute, "the replica follows", func() bool {
		info, _ := replica.Client(w.T).Info(context.Background(), "replication").Result()
		return strings.Contains(info, "master_link_status:up")
	})
	caddyrun.Eventually(w.T, time.Minute, "the replica takes over", func() bool {
		_ = replica.Client(w.T).ClusterFailover(context.Background()).Err() // an error once it is the master; it may give up before
		return replica.IsMaster(w.T)
	})
	caddyrun.Eventually(w.T, time.Minute, "the others know", func() bool { return len(w.masters()) == len(masters) })
	return func() {}
}

// slotCount is how many slots a Cluster has.
const slotCount = 16384

// moveSlots takes a part of its slots from one node, and gives them to another.
func moveSlots(w *world, r *rand.Rand) func() {
	masters := w.masters()
	order := r.Perm(len(masters))
	from, to := masters[order[0]], masters[order[1]]
	var own []int
	all, err := from.Client(w.T).ClusterShards(context.Background()).Result()
	if err != nil {
		w.Fatal(err)
	}
	for _, shard := range all {
		if !slices.ContainsFunc(shard.Nodes, func(n goredis.Node) bool { return strings.HasSuffix(from.Addr, fmt.Sprint(":", n.Port)) }) {
			continue
		}
		for _, s := range shard.Slots {
			for slot := s.Start; slot <= s.End; slot++ {
				own = append(own, int(slot))
			}
		}
	}
	if len(own) > slotCount/6 { // no node is left without
		r.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
		redistest.MoveSlots(w.T, masters, from, to, own[:slotCount/16]...)
	}
	return func() {}
}

func addresses(servers []*redistest.Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr)
	}
	return strings.Join(all, " ")
}

// TestSoakSentinel is TestSoak on a master and its replica, which change places.
func TestSoakSentinel(t *testing.T) {
	const name = "limits"
	master := redistest.Start(t)
	w := &world{T: t, servers: []*redistest.Server{master, redistest.StartReplica(t, nil, master)}}
	sentinels := redistest.StartSentinels(t, nil, master, name, 1)
	w.faults = append(slices.Clone(anywhere), fault{"failover", func(w *world, _ *rand.Rand) func() { return w.failOver(sentinels[0], name) }})
	w.store = fmt.Sprintf("address %s\nmaster %s\nsentinel_username %s\nsentinel_password %s",
		addresses(sentinels), name, redistest.SentinelUsername, redistest.SentinelPassword)
	w.startCaddys()
	w.soak(*length)
}

// failOver makes the replica the master. Writes stop from before the replica has them all until the
// old master follows: Redis loses others, as docs/redis.md says.
func (w *world) failOver(sentinel *redistest.Server, name string) func() {
	ctx := context.Background()
	i := slices.IndexFunc(w.servers, func(s *redistest.Server) bool { return s.IsMaster(w.T) })
	old, next := w.servers[i], w.servers[1-i]
	w.command(old, "CLIENT", "PAUSE", "60000", "WRITE")
	field := func(s *redistest.Server, name string) string {
		info, _ := s.Client(w.T).Info(ctx, "replication").Result()
		_, rest, _ := strings.Cut(info, name+":")
		value, _, _ := strings.Cut(rest, "\r")
		return value
	}
	caddyrun.Eventually(w.T, time.Minute, "the replica has what the master has", func() bool {
		offset := field(old, "master_repl_offset")
		return offset != "" && offset == field(next, "slave_repl_offset")
	})
	caddyrun.Eventually(w.T, time.Minute, "the Sentinel begins a failover", func() bool {
		return sentinel.SentinelClient(w.T).Failover(ctx, name).Err() == nil
	})
	caddyrun.Eventually(w.T, time.Minute, "the replica is the master", func() bool { return next.IsMaster(w.T) })
	// The Sentinels see to that later: what they publish waits as writes do.
	host, port, _ := net.SplitHostPort(next.Addr)
	w.command(old, "REPLICAOF", host, port)
	caddyrun.Eventually(w.T, time.Minute, "the master is the replica", func() bool { return field(old, "master_link_status") == "up" })
	w.command(old, "CLIENT", "UNPAUSE")
	return func() {}
}
