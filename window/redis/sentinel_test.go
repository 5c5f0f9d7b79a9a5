package redis_test

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// What the client sends to a Sentinel.
const (
	askAddress = "*3\r\n$8\r\nsentinel\r\n$23\r\nget-master-addr-by-name\r\n$4\r\nmain\r\n"
	subscribe  = "*2\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n"
)

// texts is a reply.
func texts(all ...string) string {
	reply := fmt.Sprintf("*%d", len(all))
	for _, text := range all {
		reply += fmt.Sprintf("\r\n$%d\r\n%s", len(text), text)
	}
	return reply
}

// TestSentinelLies has a Sentinel say things about the master that the client would end
// this process for: they are refused.
func TestSentinelLies(t *testing.T) {
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	const subscribed = "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"
	for address, message := range map[string]string{
		"*0":               "",
		texts("127.0.0.1"): "",
		texts(host, port):  texts("message", "+switch-master", "main"),
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

// TestSentinelForms holds what forms of a Sentinel's replies are let through.
func TestSentinelForms(t *testing.T) {
	moved := texts("message", "+switch-master", "main 127.0.0.1 1 127.0.0.1 2")
	for _, c := range []struct {
		sent, replies string
		good          bool
	}{
		{askAddress, texts("127.0.0.1", "6379"), true},
		{askAddress, "*-1", true},
		{askAddress, "_", true},
		{askAddress, "-ERR no such master", true},
		{askAddress, "|1\r\n+a\r\n+b\r\n" + texts("127.0.0.1", "6379"), true},
		{askAddress, texts("127.0.0.1", "6379") + "\r\n*0", true}, // to something else
		{askAddress, "*0", false},
		{askAddress, "*1\r\n*-1", false},
		{askAddress, "~1\r\n+x", false},
		{askAddress, "%1\r\n+x\r\n+y", false},
		{askAddress, "|1\r\n+a\r\n+b\r\n*0", false},
		{"*2\r\n$8\r\nsentinel\r\n$9\r\nsentinels\r\n", "*0", true},

		{subscribe, "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n" + moved + "\r\n" + texts("pong", "") + "\r\n+PONG\r\n" + moved, true},
		{subscribe, ">3\r\n$7\r\nmessage\r\n$20\r\n+replica-reconf-done\r\n$1\r\nx", true},
		{subscribe, "-ERR unknown", true},
		{subscribe, texts("message", "+switch-master", "main"), false},
		{subscribe, texts("message", "+switch-master", "main 127.0.0.1 1 127.0.0.1"), false},
		{subscribe, texts("message", "+switch-master", ""), false},
		{subscribe, "*3\r\n+message\r\n++switch-master\r\n+main", false},
		{subscribe, ">3\r\n+message\r\n=18\r\ntxt:+switch-master\r\n+main", false},
		{subscribe, "*0", false},
		{subscribe, "*-1", false},
		{subscribe, texts("pong"), false},
		{subscribe, texts("pong", "x", "y"), false},
		{subscribe, texts("message", "+switch-master"), false},
		{subscribe, texts("subscribe", "+switch-master", "1"), false},
		{subscribe, "*3\r\n+message\r\n+other\r\n:1", false},
		{subscribe, "*3\r\n:1\r\n:2\r\n:3", false},
		{subscribe, "*3\r\n+subscribe\r\n:1\r\n:2", false},
		{subscribe, "*3\r\n+message\r\n$-1\r\n+main", false},
		{subscribe, "*3\r\n+message\r\n+other\r\n*1\r\n:1", false},
		{subscribe, texts("pmessage", "+switch-master", "main"), false},
		{subscribe, "%1\r\n+message\r\n+x", false},
		{subscribe, ":1", false},
	} {
		if got := redis.CheckSentinel(c.sent, []byte(c.replies+"\r\n")); got != c.good {
			t.Errorf("after %q, %q is let through: %t, want %t", c.sent, c.replies, got, c.good)
		}
	}
}

// TestSentinelMaster has clients choose keys and fields that look like commands to a
// Sentinel: the connection is to the master, where they mean nothing.
func TestSentinelMaster(t *testing.T) {
	watcher := redistest.StartSentinel(t, redistest.Start(t), "main")
	s := newStore(t, redis.Options{Addresses: []string{watcher.Addr}, Master: "main"})
	for _, text := range []string{"get-master-addr-by-name", askAddress, subscribe, "*3\r\n" + askAddress, strings.Repeat(askAddress, 3_000)} {
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
