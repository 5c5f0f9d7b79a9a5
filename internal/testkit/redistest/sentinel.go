package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Credentials at the Sentinels of StartSentinels, of a user who may do what clients
// have to and no more.
const (
	SentinelUsername = "watcher"
	SentinelPassword = "watching"
)

// peer is by what name, and with what password, those Sentinels reach each other.
const peer = "peer"

// StartSentinel runs a Sentinel that alone watches a master, for the time of the
// test.
func StartSentinel(tb testing.TB, master *Server, name string) *Server {
	tb.Helper()
	host, port, _ := net.SplitHostPort(master.Addr)
	return startSentinel(tb, nil, fmt.Sprintf("sentinel monitor %s %s %s 1\n", name, host, port))
}

// StartSentinels runs three Sentinels that watch a master, and waits until they know
// each other and its replicas. They take the master for dead after two seconds, which
// a busy machine does not make them do, and want credentials.
func StartSentinels(tb testing.TB, cert *Certificate, master *Server, name string, replicas int) []*Server {
	tb.Helper()
	host, port, _ := net.SplitHostPort(master.peerAddr())
	config := fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s 2
sentinel down-after-milliseconds %[1]s 2000
sentinel failover-timeout %[1]s 5000
sentinel parallel-syncs %[1]s 2
sentinel sentinel-user %[4]s
sentinel sentinel-pass %[4]s
user %[4]s on >%[4]s &* +@all
user %[5]s on >%[6]s &* -@all +sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe
user default on nopass -@all +info
`, name, host, port, peer, SentinelUsername, SentinelPassword)
	sentinels := make([]*Server, 3)
	for i := range sentinels {
		sentinels[i] = startSentinel(tb, cert, config)
	}
	for _, s := range sentinels {
		c := s.SentinelClient(tb)
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			about, err := c.Master(context.Background(), name).Result()
			if err == nil && about["num-other-sentinels"] == "2" && about["num-slaves"] == strconv.Itoa(replicas) {
				break
			}
			if time.Now().After(deadline) {
				tb.Fatalf("the Sentinels are not ready: %v, %v", about, err)
			}
		}
	}
	return sentinels
}

// SentinelClient returns a client to look into a Sentinel of StartSentinels with.
func (s *Server) SentinelClient(tb testing.TB) *goredis.SentinelClient {
	c := goredis.NewSentinelClient(&goredis.Options{
		Addr:                     s.Addr,
		Username:                 peer,
		Password:                 peer,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// startSentinel runs a Sentinel with a configuration, which it writes to.
func startSentinel(tb testing.TB, cert *Certificate, config string) *Server {
	tb.Helper()
	dir := tb.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	args, tlsAddr := []string{"--sentinel"}, ""
	if cert != nil {
		port := strconv.Itoa(FreePort(tb))
		args = append(args, cert.args(port)...)
		tlsAddr = net.JoinHostPort("127.0.0.1", port)
	}
	s, err := launch(dir, file, args)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	s.TLSAddr = tlsAddr
	return s
}
