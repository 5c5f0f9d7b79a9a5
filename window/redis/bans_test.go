package redis_test

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/banstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

var (
	banSteps = flag.Int("bans.steps", 20_000, "how many writes TestAgreeOnBans has; make test-long has a million")
	banSeed  = flag.Uint64("bans.seed", 1, "the seed of TestAgreeOnBans")
)

// TestAgreeOnBans compares every field of what Redis and a Table answer to random writes.
func TestAgreeOnBans(t *testing.T) {
	steps := 0
	for seed := *banSeed; steps < *banSteps; seed++ {
		w := banstest.NewWalk(seed, 5+int(seed%40))
		now := func() int64 { return w.Now }
		table, store := bans.NewTable(now), redis.Full(newStore(t, redis.Options{Now: now}))
		for w.Writes < min(10_000, *banSteps-steps) {
			ask := w.Next()
			want, _ := table.ExchangeBans(t.Context(), ask)
			got, err := store.ExchangeBans(t.Context(), ask)
			if err != nil || banstest.Text(got) != banstest.Text(want) {
				t.Fatalf("seed %d, call %d: %+v:\n%v\ngot  %s\nwant %s", seed, w.Calls, ask, err, banstest.Text(got), banstest.Text(want))
			}
			w.Hear(want)
		}
		steps += w.Writes
	}
}

// One store's bans are those of all of its prefix, on one server and in a Cluster. All keys expire.
func TestBans(t *testing.T) {
	server, nodes := redistest.Start(t), redistest.StartCluster(t, 3)
	for name, o := range map[string]redis.Options{
		"standalone": {Addresses: []string{server.Addr}, Prefix: "b", Timeout: 10 * time.Second},
		"cluster":    {Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: "b", Timeout: 10 * time.Second},
		"hashed":     {Addresses: []string{server.Addr}, Prefix: "h", KeySecret: secret, Timeout: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := redis.Full(newStore(t, o)), redis.Full(newStore(t, o))
			before := time.Now().UnixMilli()
			wrote := exchangeBans(t, a, bans.Ask{Writes: []bans.Write{
				{Op: bans.Set, Member: "key api anna", About: "x", For: 60_000, Keep: 60_000},
				{Op: bans.Lift, Member: "key api bob"},
			}})
			if len(wrote.Done) != 2 || !wrote.Done[0] || wrote.Done[1] || len(wrote.Changes) != 1 {
				t.Errorf("wrote %+v, want one change", wrote)
			}
			for _, n := range append(nodes, server) {
				c := n.Client(t)
				for _, key := range c.Keys(t.Context(), o.Prefix+":*").Val() {
					if ttl := c.PTTL(t.Context(), key).Val(); ttl < 100*time.Second || ttl > 121*time.Second {
						t.Errorf("%s lives for %s, want two minutes", key, ttl)
					}
				}
				c.ScriptFlush(t.Context())
			}
			read := exchangeBans(t, b, bans.Ask{})
			if banstest.Text(bans.Answer{Change: 1, Changes: read.Changes}) != banstest.Text(bans.Answer{Change: 1, Changes: wrote.Changes}) || read.Now < before || read.Now > time.Now().UnixMilli() {
				t.Errorf("read %+v, want %+v", read, wrote)
			}
			if again := exchangeBans(t, b, bans.Ask{Known: 1, Witness: "key api anna"}); again.Lost || again.Change != 1 || again.Changes != nil {
				t.Errorf("again %+v, want nothing new", again)
			}
		})
	}
}

func exchangeBans(t *testing.T, s bans.Store, ask bans.Ask) bans.Answer {
	t.Helper()
	a, err := s.ExchangeBans(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// What another program has written to the keys is an error that names them, and no other data is taken for a ban.
func TestBansForeign(t *testing.T) {
	raw := server.Client(t)
	for name, foreign := range map[string]func(ctx context.Context, key string) error{
		"hash":   func(ctx context.Context, key string) error { return raw.Set(ctx, key, "x", time.Hour).Err() },
		"number": func(ctx context.Context, key string) error { return raw.HSet(ctx, key, "last", "x").Err() },
		"changes": func(ctx context.Context, key string) error {
			raw.HSet(ctx, key, "last", 1)
			return raw.Set(ctx, key+":changes", "x", time.Hour).Err()
		},
		"record": func(ctx context.Context, key string) error {
			raw.ZAdd(ctx, key+":changes", goredis.Z{Score: 1, Member: "key api anna"})
			return raw.HSet(ctx, key, "last", 1, "key api anna", "no record").Err()
		},
	} {
		prefix := freshPrefix("foreign")
		if err := foreign(t.Context(), prefix+":{bans}"); err != nil {
			t.Fatal(err)
		}
		_, err := redis.Full(newStore(t, redis.Options{Prefix: prefix})).ExchangeBans(t.Context(), bans.Ask{})
		if cure := "DEL " + prefix + ":{bans} " + prefix + ":{bans}:changes "; !errors.Is(err, window.ErrForeign) || !strings.Contains(err.Error(), cure) {
			t.Errorf("%s: %v, want an error with %q", name, err, cure)
		}
	}
}

// The server may answer anything.
func TestBansOfAStrangeServer(t *testing.T) {
	for name, reply := range map[string]string{
		"no list":       "+OK",
		"too short":     "*3\r\n:1\r\n:1\r\n:0",
		"no number":     "*4\r\n:1\r\n$1\r\n1\r\n:0\r\n:0",
		"below zero":    "*4\r\n:-1\r\n:1\r\n:0\r\n:0",
		"no truth":      "*4\r\n:1\r\n:1\r\n:2\r\n:0",
		"half a change": "*5\r\n:1\r\n:1\r\n:0\r\n:0\r\n$1\r\nm",
		"no record":     "*6\r\n:1\r\n:1\r\n:0\r\n:0\r\n$1\r\nm\r\n$1\r\nx",
		"no texts":      "*6\r\n:1\r\n:1\r\n:0\r\n:0\r\n:1\r\n:2",
	} {
		s := newStore(t, redis.Options{Addresses: []string{fakeServer(t, func([]string) string { return reply })}, Timeout: time.Second})
		if a, err := redis.Full(s).ExchangeBans(t.Context(), bans.Ask{}); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
