package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// StartCluster runs a Cluster of n masters for the time of the test.
func StartCluster(tb testing.TB, n int) []*Server {
	tb.Helper()
	nodes := make([]*Server, n)
	for i := range nodes {
		nodes[i] = Start(tb, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "1000")
	}
	const slots = 16384
	for i, node := range nodes {
		do(tb, node, "CLUSTER", "ADDSLOTSRANGE", i*slots/n, (i+1)*slots/n-1)
		do(tb, node, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	for _, node := range nodes[1:] {
		host, port, _ := net.SplitHostPort(node.Addr)
		do(tb, nodes[0], "CLUSTER", "MEET", host, port)
	}
	deadline := time.Now().Add(patience)
	for _, node := range nodes {
		for {
			info := do(tb, node, "CLUSTER", "INFO")
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(n)+"\r") {
				break
			}
			if time.Now().After(deadline) {
				tb.Fatalf("the cluster is not ready:\n%s", info)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nodes
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

func do(tb testing.TB, s *Server, args ...any) string {
	tb.Helper()
	reply, err := s.Client(tb).Do(context.Background(), args...).Text()
	if err != nil {
		tb.Fatalf("%v: %v", args, err)
	}
	return reply
}
