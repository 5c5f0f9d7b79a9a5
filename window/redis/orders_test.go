package redis_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// What one store writes, the others of its prefix read, with the time of the server. An order is written only in the place
// of the one that its writer knows, and all last as long as the newest, by the clock of the server.
func TestOrders(t *testing.T) {
	server, nodes := redistest.Start(t), redistest.StartCluster(t, 3)
	for name, o := range map[string]redis.Options{
		"standalone": {Addresses: []string{server.Addr}, Prefix: "en", Timeout: 10 * time.Second},
		"cluster":    {Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: "en", Timeout: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			type orders = map[string]string
			a, b := newStore(t, o), newStore(t, o)
			exchange := func(what string, s *redis.Store, known, next, want orders) {
				t.Helper()
				before := time.Now()
				now, got, err := redis.Full(s).ExchangeOrders(t.Context(), known, next, time.Hour)
				if err != nil || !maps.Equal(got, want) {
					t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
				}
				if now.Before(before.Truncate(time.Microsecond)) || now.After(time.Now()) {
					t.Errorf("%s: it is %s, want between %s and now", what, now, before)
				}
			}
			exchange("nothing there", a, nil, nil, nil)
			exchange("two", a, nil, orders{"api": "1", "login": "2"}, orders{"api": "1", "login": "2"})
			exchange("another Caddy", b, orders{"api": "1"}, orders{"api": "3"}, orders{"api": "3", "login": "2"})
			exchange("too late", a, orders{"api": "1", "login": "2"}, orders{"api": "4", "login": "5"}, orders{"api": "3", "login": "5"})
			exchange("unknown", a, nil, orders{"api": "6"}, orders{"api": "3", "login": "5"})
			exchange("known, and not there", a, orders{"web": "7"}, orders{"web": "8"}, orders{"api": "3", "login": "5"})
			for _, n := range nodes {
				if ttl := n.Client(t).PTTL(t.Context(), "en:{enforce}").Val(); name == "cluster" && ttl > time.Hour {
					t.Errorf("the orders last for %s", ttl)
				}
			}
			if ttl := server.Client(t).PTTL(t.Context(), "en:{enforce}").Val(); name == "standalone" && (ttl <= 59*time.Minute || ttl > time.Hour) {
				t.Errorf("the orders last for %s, want an hour", ttl)
			}
			other := o
			other.Prefix = "other"
			exchange("another prefix", newStore(t, other), nil, nil, nil)
		})
	}
}

// The server may answer anything.
func TestOrdersOfAStrangeServer(t *testing.T) {
	for name, reply := range map[string]string{
		"no list":         "+OK\r\n",
		"too short":       "*1\r\n$1\r\n1\r\n",
		"no time":         "*3\r\n$1\r\nx\r\n$1\r\n1\r\n*0\r\n",
		"no microseconds": "*3\r\n$1\r\n1\r\n$1\r\nx\r\n*0\r\n",
		"no orders":       "*3\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\nx\r\n",
		"half an order":   "*3\r\n$1\r\n1\r\n$1\r\n1\r\n*1\r\n$1\r\nx\r\n",
	} {
		s := newStore(t, redis.Options{Addresses: []string{fakeServer(t, func([]string) string { return strings.TrimSuffix(reply, "\r\n") })}, Timeout: time.Second})
		if _, _, err := redis.Full(s).ExchangeOrders(t.Context(), nil, nil, time.Hour); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
