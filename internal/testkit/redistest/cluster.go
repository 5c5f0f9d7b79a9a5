package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// nodeTimeout is after how many milliseconds the others take a node of a Cluster for
// dead.
const nodeTimeout = "1000"

// StartCluster runs a Cluster of n masters for the time of the test.
func StartCluster(tb testing.TB, n int) []*Server {
	tb.Helper()
	return StartTLSCluster(tb, nil, n)
}

// StartTLSCluster is StartCluster with a certificate, unless that is nil.
func StartTLSCluster(tb testing.TB, cert *Certificate, n int) []*Server {
	tb.Helper()
	nodes := make([]*Server, n)
	for i := range nodes {
		nodes[i] = startNode(tb, cert)
	}
	const slots = 16384
	for i, node := range nodes {
		do(tb, node, "CLUSTER", "ADDSLOTSRANGE", i*slots/n, (i+1)*slots/n-1)
		do(tb, node, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	for _, node := range nodes[1:] {
		meet(tb, nodes[0], node)
	}
	waitForCluster(tb, nodes)
	return nodes
}

// AddNode runs another master, which has no slots, for the time of the test.
func AddNode(tb testing.TB, cert *Certificate, nodes []*Server) *Server {
	tb.Helper()
	node := startNode(tb, cert)
	Join(tb, node, nodes...)
	return node
}

// Join makes a node that has no slots part of a Cluster.
func Join(tb testing.TB, node *Server, nodes ...*Server) {
	tb.Helper()
	meet(tb, nodes[0], node)
	waitForCluster(tb, append([]*Server{node}, nodes...))
}

// AddReplica runs a replica of one of the nodes for the time of the test.
func AddReplica(tb testing.TB, cert *Certificate, nodes []*Server, master *Server) *Server {
	tb.Helper()
	node := AddNode(tb, cert, nodes)
	do(tb, node, "CLUSTER", "REPLICATE", do(tb, master, "CLUSTER", "MYID"))
	waitFor(tb, node, "master_link_status:up", "INFO", "replication")
	return node
}

func startNode(tb testing.TB, cert *Certificate) *Server {
	tb.Helper()
	// A master that loses its last slot stays one.
	return start(tb, cert, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", nodeTimeout, "--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0")
}

func meet(tb testing.TB, one, other *Server) {
	tb.Helper()
	host, port, _ := net.SplitHostPort(other.peerAddr())
	do(tb, one, "CLUSTER", "MEET", host, port)
}

// waitForCluster waits until all nodes know each other by name and agree that all is
// well. A node counts as known before its name is.
func waitForCluster(tb testing.TB, nodes []*Server) {
	tb.Helper()
	for _, node := range nodes {
		for _, other := range nodes {
			waitFor(tb, node, do(tb, other, "CLUSTER", "MYID"), "CLUSTER", "NODES")
		}
		waitFor(tb, node, "cluster_state:ok", "CLUSTER", "INFO")
	}
}

// MoveSlots moves slots from one node of a Cluster to another, key by key, and
// returns the number of keys that it moved. Until it returns, `from` redirects requests for a
// key that it does not hold to `to`.
func MoveSlots(tb testing.TB, nodes []*Server, from, to *Server, slots ...int) int {
	tb.Helper()
	ctx := context.Background()
	source, ids := from.Client(tb), map[*Server]string{}
	for _, node := range []*Server{from, to} {
		ids[node] = do(tb, node, "CLUSTER", "MYID")
	}
	set := func(node *Server, state string, about *Server) {
		tb.Helper()
		_, err := node.Client(tb).Pipelined(ctx, func(pipe goredis.Pipeliner) error {
			for _, slot := range slots {
				pipe.Do(ctx, "CLUSTER", "SETSLOT", slot, state, ids[about])
			}
			return nil
		})
		if err != nil {
			tb.Fatalf("%s of %d slots: %v", state, len(slots), err)
		}
	}
	set(to, "IMPORTING", from)
	set(from, "MIGRATING", to)
	moved := 0
	host, port, _ := net.SplitHostPort(to.peerAddr())
	for _, slot := range slots {
		for {
			keys, err := source.ClusterGetKeysInSlot(ctx, slot, 100).Result()
			if err != nil {
				tb.Fatal(err)
			}
			for _, key := range keys {
				if err := source.Migrate(ctx, host, port, key, 0, patience).Err(); err != nil {
					tb.Fatalf("moving %s: %v", key, err)
				}
			}
			if moved += len(keys); len(keys) == 0 {
				break
			}
		}
	}
	set(to, "NODE", to)
	for _, node := range nodes {
		if node != to {
			set(node, "NODE", to)
		}
	}
	return moved
}

// OwnAllSlots makes a Cluster of a server that was started for one, and waits until
// it is ready.
func (s *Server) OwnAllSlots(ctx context.Context) error {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr, DisableIdentity: true})
	defer func() { _ = c.Close() }()
	if err := c.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		info, err := c.ClusterInfo(ctx).Result()
		if err != nil || strings.Contains(info, "cluster_state:ok") {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the cluster is not ready:\n%s", info)
		}
	}
}

// waitFor waits until a server answers a command with a text that holds want.
func waitFor(tb testing.TB, s *Server, want string, args ...any) {
	tb.Helper()
	c := s.Client(tb)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		text, err := c.Do(context.Background(), args...).Text()
		if err == nil && strings.Contains(text, want) {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%v: %q, %v, want %q", args, text, err, want)
		}
	}
}

func do(tb testing.TB, s *Server, args ...any) string {
	tb.Helper()
	reply, err := s.Client(tb).Do(context.Background(), args...).Text()
	if err != nil {
		tb.Fatalf("%v: %v", args, err)
	}
	return reply
}
