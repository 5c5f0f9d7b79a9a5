package redis_test

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestSentinelLies makes a Sentinel say things about the master that the client would end
// this process for: they are refused.
func TestSentinelLies(t *testing.T) {
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	const subscribed = "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"
	for address, message := range map[string]string{
		"*0":                         "",
		redistest.Texts("127.0.0.1"): "",
		redistest.Texts(host, port):  redistest.Texts("message", "+switch-master", "main"),
	} {
		var subscriptions atomic.Int64
		lying := fakeServer(t, func(args []string) string {
			switch {
			case strings.EqualFold(args[0], "subscribe"):
				subscriptions.Add(1)
				return subscribed + message
			case len(args) > 1 && strings.EqualFold(args[1], "get-master-addr-by-name"):
				return address
			}
			return "*0"
		})
		s := newStore(t, redis.Options{Addresses: []string{lying}, Master: "main", Timeout: time.Second})
		_, err := s.Take(t.Context(), []window.Charge{charge("zone", "key", 100, time.Hour)})
		if message == "" {
			if !errors.Is(err, window.ErrUnavailable) {
				t.Errorf("%q: Take = %v, want ErrUnavailable", address, err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
		}
		eventually(t, patience, "the connection ends, and the client subscribes again", func() bool { return subscriptions.Load() > 1 })
	}
}

// TestSentinelMaster lets clients choose keys and fields that look like commands to a
// Sentinel: the connection is to the master, where they mean nothing.
func TestSentinelMaster(t *testing.T) {
	watcher := redistest.StartSentinel(t, redistest.Start(t), "main")
	s := newStore(t, redis.Options{Addresses: []string{watcher.Addr}, Master: "main"})
	for _, text := range []string{"get-master-addr-by-name", redistest.AskAddress, redistest.Subscribe, "*3\r\n" + redistest.AskAddress, strings.Repeat(redistest.AskAddress, 3_000)} {
		several := charge("zone", text, 100, time.Hour)
		several.Policies = append(several.Policies, window.Policy{Limit: 10, Window: time.Minute})
		take(t, s, several)
		take(t, s, several, charge("another", text, 100, time.Hour))
		noted := of(window.Stream{}, charge("noted", "key", 1_000, time.Hour))
		noted.Fields = []string{"path", text}
		for range 3 {
			take(t, s, noted)
		}
		parallel(20, func(i int) {
			take(t, s, charge("crowd", text+strconv.Itoa(i%3), 1_000, time.Hour))
		})
	}
}
