package redis_test

import (
	"context"
	"crypto/tls"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// counting is a hook that counts calls, as one that traces them would.
type counting struct{ calls atomic.Int64 }

func (c *counting) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *counting) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		c.calls.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counting) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		c.calls.Add(1)
		return next(ctx, cmds)
	}
}

// TestGivenClient decides with clients of the caller, which stay open.
func TestGivenClient(t *testing.T) {
	secret := redistest.Start(t)
	if err := secret.Client(t).Do(t.Context(), "ACL", "SETUSER", "app", "on", ">token", "~mine", "~given:*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	nodes := redistest.StartCluster(t, 3)
	master := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, master, "main")
	for name, client := range map[string]goredis.UniversalClient{
		"single": goredis.NewClient(&goredis.Options{Addr: secret.Addr, ContextTimeoutEnabled: true, CredentialsProvider: func() (string, string) {
			return "app", "token"
		}}),
		"cluster": goredis.NewClusterClient(&goredis.ClusterOptions{
			Addrs: []string{nodes[0].Addr}, ContextTimeoutEnabled: true, DisableRoutingPolicies: true,
		}),
		"sentinel": goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "main", ContextTimeoutEnabled: true, SentinelAddrs: []string{sentinel.Addr}}),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { _ = client.Close() }()
			hook := new(counting)
			client.AddHook(hook)
			// The client knows the nodes of its Cluster before the store has it.
			if err := client.Set(t.Context(), "mine", "1", 0).Err(); err != nil {
				t.Fatal(err)
			}
			s, err := redis.NewWithClient(client, redis.Options{Prefix: "given", Timeout: patience})
			if err != nil {
				t.Fatal(err)
			}
			before := hook.calls.Load()
			for i, key := range strings.Split("a b c d e f g h a b c d e f g h", " ") {
				if ds := take(t, s, charge("zone", key, 1, time.Hour)); ds[0].Allowed != (i < 8) {
					t.Errorf("charge %d of %s: %+v", i, key, ds[0])
				}
			}
			if hook.calls.Load() == before {
				t.Error("the client's hook has seen no call")
			}
			// NOSCRIPT of the caller's own scripts is not ours.
			if err := client.EvalSha(t.Context(), strings.Repeat("0", 40), []string{"mine"}).Err(); err == nil || !goredis.HasErrorPrefix(err, "NOSCRIPT") {
				t.Errorf("a call of an unknown script: %v, want NOSCRIPT", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := client.Get(t.Context(), "mine").Result(); got != "1" || err != nil {
				t.Errorf("after Close of the store: %q, %v", got, err)
			}
		})
	}
}

func TestGivenRefused(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	late := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{server.Addr}})
	defer func() { _ = late.Close() }()
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"one": server.Addr}})
	defer func() { _ = ring.Close() }()
	for want, c := range map[string]struct {
		client goredis.UniversalClient
		o      redis.Options
	}{
		"a Ring moves keys":          {ring, redis.Options{}},
		"is not a client of package": {nil, redis.Options{}},
		"set ContextTimeoutEnabled":  {late, redis.Options{}},
		"cannot be combined":         {client, redis.Options{Password: "secret"}},
		"set them on the client":     {client, redis.Options{TLS: new(tls.Config)}},
	} {
		if s, err := redis.NewWithClient(c.client, c.o); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewWithClient = %v, %v; want %q", s, err, want)
		}
	}
}
