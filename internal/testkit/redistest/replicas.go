package redistest

import (
	"context"
	"net"
	"strings"
	"testing"
)

// StartReplica runs a replica of a master for the time of the test, and waits until
// it has all that the master has.
func StartReplica(tb testing.TB, cert *Certificate, master *Server) *Server {
	tb.Helper()
	host, port, _ := net.SplitHostPort(master.peerAddr())
	s := start(tb, cert, "--replicaof", host, port)
	waitFor(tb, s, "master_link_status:up", "INFO", "replication")
	return s
}

// CutReplicas keeps a master's replicas from following it any further: it drops them,
// and wants a password from then on of everyone new who has no user of his own.
func (s *Server) CutReplicas(tb testing.TB) {
	tb.Helper()
	ctx, c := context.Background(), s.Client(tb)
	if err := c.ConfigSet(ctx, "requirepass", "none of the replicas knows it").Err(); err != nil {
		tb.Fatal(err)
	}
	if err := c.ClientKillByFilter(ctx, "TYPE", "replica").Err(); err != nil {
		tb.Fatal(err)
	}
}

// IsMaster reports whether the server is there and says that it is a master.
func (s *Server) IsMaster(tb testing.TB) bool {
	info, err := s.Client(tb).Info(context.Background(), "replication").Result()
	return err == nil && strings.Contains(info, "role:master")
}
