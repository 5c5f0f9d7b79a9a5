package redis_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/banstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestAgreeOnBans compares every field of what Redis, a Model and a Table answer to random writes, and of what Redis and the Model
// keep. TestAgree of package bans compares Table and Model.
func TestAgreeOnBans(t *testing.T) {
	raw := server.Client(t)
	for w := range banstest.Walks(t) {
		now, prefix, calls := func() int64 { return w.Now }, freshPrefix("agree"), 0
		store := newStore(t, redis.Options{Now: now, Prefix: prefix})
		table, model := bans.NewTable(now), banstest.NewModel(w.Most, now)
		for ask := range w.Calls() {
			answer, _ := model.ExchangeBans(t.Context(), ask)
			want := banstest.Text(answer)
			got, err := redis.ExchangeBans(t.Context(), store, ask, w.Most)
			if err != nil || banstest.Text(got) != want {
				t.Fatalf("seed %d: %+v:\n%v\ngot  %s\nwant %s", w.Seed, ask, err, banstest.Text(got), want)
			}
			if w.Most == bans.MostRecords {
				if got, _ = table.ExchangeBans(t.Context(), ask); banstest.Text(got) != want {
					t.Fatalf("seed %d: %+v:\na Table has %s\nwant %s", w.Seed, ask, banstest.Text(got), want)
				}
			}
			if calls++; calls%10 == 0 {
				kept := raw.HGetAll(t.Context(), prefix+":{bans}").Val()
				delete(kept, "last")
				if want := banstest.Texts(model); !maps.Equal(kept, want) {
					t.Fatalf("seed %d: %+v:\nRedis keeps %v\nwant %v", w.Seed, ask, kept, want)
				}
			}
			w.Hear(answer)
		}
	}
}

// TestBansEdges holds that the level falls after a whole halve, not a millisecond sooner or later.
func TestBansEdges(t *testing.T) {
	rule := bans.Rule{Length: 10_000, After: 1, In: 1_000, Factor: 2000, Max: 80_000, Halve: 100_000}
	for _, test := range []struct{ at, want int64 }{{99_999, 40_000}, {100_000, 20_000}, {199_999, 20_000}, {200_000, 10_000}} {
		clock := windowtest.NewClock()
		s := redis.Full(newStore(t, redis.Options{Now: clock.Now}))
		strike := bans.Ask{Writes: []bans.Write{{Op: bans.Strike, Member: "api anna", Rule: rule}}}
		for _, wait := range []int64{0, 10_000, 20_000 + test.at} {
			clock.Add(wait)
			if a := exchangeBans(t, s, strike); !a.Done[0] || wait == 20_000+test.at && a.Changes[0].Record.Left(a.Now) != test.want {
				t.Errorf("%d after the second ban: %+v, want %d", test.at, a, test.want)
			}
		}
	}
}

// One store's bans are those of all of its prefix, on one server and in a Cluster. All keys expire.
func TestBans(t *testing.T) {
	server, nodes := redistest.Start(t), redistest.StartCluster(t, 3)
	for name, o := range map[string]redis.Options{
		"standalone": {Addresses: []string{server.Addr}, Prefix: "b", Timeout: 10 * time.Second},
		"cluster":    {Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: "c", Timeout: 10 * time.Second},
		"hashed":     {Addresses: []string{server.Addr}, Prefix: "h", KeySecret: secret, Timeout: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := redis.Full(newStore(t, o)), redis.Full(newStore(t, o))
			before := time.Now().UnixMilli()
			wrote := exchangeBans(t, a, bans.Ask{Writes: []bans.Write{
				{Op: bans.Set, Member: "key api anna", About: "x", For: 60_000, Keep: 60_000},
				{Op: bans.Lift, Member: "key api bob"},
				{Op: bans.Set, Member: "key api carl", For: 60_000},
				{Op: bans.Set, Member: "key api dora", For: 60_000},
			}})
			if fmt.Sprint(wrote.Done) != "[true false true true]" || len(wrote.Changes) != 3 {
				t.Errorf("wrote %+v, want three changes", wrote)
			}
			keys := 0
			for _, n := range append(nodes, server) {
				c := n.Client(t)
				for _, key := range c.Keys(t.Context(), o.Prefix+":*").Val() {
					if at := c.PExpireTime(t.Context(), key).Val().Milliseconds(); at != wrote.Now+121_000 {
						t.Errorf("%s lives for %d ms, want a second more than two minutes", key, at-wrote.Now)
					}
					keys++
				}
				c.ScriptFlush(t.Context())
			}
			if keys != 3 {
				t.Errorf("%d keys, want three", keys)
			}
			read := exchangeBans(t, b, bans.Ask{})
			if fmt.Sprint(read.Changes) != fmt.Sprint(wrote.Changes) || read.Now < before || read.Now > time.Now().UnixMilli() {
				t.Errorf("read %+v, want %+v", read, wrote)
			}
			if again := exchangeBans(t, b, bans.Ask{Known: 3, Witness: "key api dora"}); again.Lost || again.Change != 3 || again.Changes != nil {
				t.Errorf("again %+v, want nothing new", again)
			}
			if strange := exchangeBans(t, b, bans.Ask{Known: 1, Witness: "key api zoe"}); !strange.Lost || len(strange.Changes) != 3 {
				t.Errorf("of a witness that is not there %+v, want all, and a loss", strange)
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

// Where a store has lost changes, it says so once, and tells all that it has: after FLUSHALL, with an older snapshot, and when the
// server has evicted a key.
func TestBansLost(t *testing.T) {
	keys := []string{"b:{bans}", "b:{bans}:changes", "b:{bans}:ends"}
	set := func(member string) bans.Write {
		return bans.Write{Op: bans.Set, Member: "key api " + member, For: 60_000}
	}
	for name, test := range map[string]struct {
		lose func(ctx context.Context, c *goredis.Client, dumps []string)
		left string
	}{
		"FLUSHALL": {func(ctx context.Context, c *goredis.Client, _ []string) { c.FlushAll(ctx) }, ""},
		"snapshot": {func(ctx context.Context, c *goredis.Client, dumps []string) {
			for i, key := range keys {
				c.RestoreReplace(ctx, key, time.Minute, dumps[i])
			}
		}, "key api anna 1 key api bob 2 "},
		"hash":    {func(ctx context.Context, c *goredis.Client, _ []string) { c.Del(ctx, keys[0]) }, ""},
		"ends":    {func(ctx context.Context, c *goredis.Client, _ []string) { c.Del(ctx, keys[2]) }, ""},
		"nothing": {func(context.Context, *goredis.Client, []string) {}, "key api bob 2 key api anna 3 key api carl 4 "},
	} {
		own := redistest.Start(t)
		c, s := own.Client(t), redis.Full(newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "b", Now: windowtest.NewClock().Now}))
		exchangeBans(t, s, bans.Ask{Writes: []bans.Write{set("anna"), set("bob")}})
		var dumps []string
		for _, key := range keys {
			dumps = append(dumps, c.Dump(t.Context(), key).Val())
		}
		a := exchangeBans(t, s, bans.Ask{Writes: []bans.Write{set("anna"), set("carl")}})
		if a.Change != 4 {
			t.Fatalf("%+v, want four changes", a)
		}
		test.lose(t.Context(), c, dumps)
		ask := bans.Ask{Known: a.Change, Witness: "key api carl", Writes: []bans.Write{{Op: bans.Lift, Member: "key api zoe"}}}
		exchangeBans(t, s, ask) // a server that has evicted a key finds out when it is to write
		if a = exchangeBans(t, s, ask); a.Lost != (name != "nothing") {
			t.Errorf("%s: %+v, want it to be lost", name, a)
		}
		all, left := exchangeBans(t, s, bans.Ask{}), ""
		for _, change := range all.Changes {
			left += fmt.Sprint(change.Member, " ", change.Record.Change, " ")
		}
		if left != test.left || name != "nothing" && banstest.Text(all) != strings.Replace(strings.Replace(banstest.Text(a), "lost true", "lost false", 1), "[false]", "[]", 1) {
			t.Errorf("%s: %s, want %s; and after a loss %s", name, left, test.left, banstest.Text(a))
		}
		if a = exchangeBans(t, s, bans.Ask{Writes: []bans.Write{set("carl")}}); len(a.Changes) == 0 || a.Changes[len(a.Changes)-1].Member != "key api carl" {
			t.Errorf("%s: %+v, want a new change", name, a)
		}
	}
}

// A user with the documented permissions may do all that there is: more writes than a page of changes holds, and more records than are
// kept.
func TestBansAtTheirMost(t *testing.T) {
	own := redistest.Start(t)
	c := own.Client(t)
	args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~sw:*"}
	for _, p := range strings.Fields(redis.Permissions) {
		args = append(args, p)
	}
	if err := c.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	clock := windowtest.NewClock()
	store := newStore(t, redis.Options{Addresses: []string{own.Addr}, Username: "limiter", Password: "secret", Prefix: "sw", Now: clock.Now, Timeout: time.Minute})
	model := banstest.NewModel(bans.MostRecords, clock.Now)
	ask := func(most int, ask bans.Ask) bans.Answer {
		t.Helper()
		model.Most = most
		want, _ := model.ExchangeBans(t.Context(), ask)
		got, err := redis.ExchangeBans(t.Context(), store, ask, most)
		if err != nil || banstest.Text(got) != banstest.Text(want) {
			t.Fatalf("%v\ngot  %.1000s\nwant %.1000s", err, banstest.Text(got), banstest.Text(want))
		}
		return got
	}
	var writes []bans.Write
	for i := range 2*bans.MostChanges + 100 {
		writes = append(writes, bans.Write{Op: bans.Set, Member: fmt.Sprintf("key api %d", i), For: 60_000 + int64(i%1_000), About: strings.Repeat("a", 200)})
	}
	a := ask(10_000, bans.Ask{Writes: writes})
	for pages := 0; a.More; pages++ {
		if a = ask(10_000, bans.Ask{Known: a.Change, Witness: a.Changes[len(a.Changes)-1].Member}); pages > 2 {
			t.Fatalf("%+v", a)
		}
	}
	if a = ask(10_000, bans.Ask{Known: 1_100, Witness: "key api 1099"}); len(a.Changes) != bans.MostChanges || a.More {
		t.Errorf("%d changes, more %v", len(a.Changes), a.More)
	}
	one := bans.Ask{Writes: writes[:1]}
	ask(500, one) // forgets a thousand that are too many, and then the others
	ask(500, one)
	ask(10_000, bans.Ask{Writes: writes})
	clock.Add(70_000)
	for range 3 { // each forgets a thousand that are of no use
		ask(10_000, one)
	}
	if n := c.HLen(t.Context(), "sw:{bans}").Val(); n != 2 {
		t.Errorf("%d fields, want those of one record", n)
	}
	var two [2]bans.Write // of which strikes are too many together
	for i := range two {
		two[i] = bans.Write{Op: bans.Merge, Member: "key api 1", Record: bans.Record{Forget: 2 * clock.Now()}}
		for n := range int64(bans.MostStrikes) {
			two[i].Record.Strikes = append(two[i].Record.Strikes, 2_000*n+1_000*int64(i))
		}
	}
	two[1].Record.Until = 1
	if a = ask(10_000, bans.Ask{Writes: two[:]}); len(a.Changes[len(a.Changes)-1].Record.Strikes) != bans.MostStrikes {
		t.Errorf("%+v, want %d strikes", a, bans.MostStrikes)
	}
}

// TestBansFlood has a hundred thousand keys and more denied once each. Redis keeps no more records than it may, and who was banned
// before still is.
func TestBansFlood(t *testing.T) {
	own := redistest.Start(t)
	c, clock := own.Client(t), windowtest.NewClock()
	s := redis.Full(newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "b", Now: clock.Now}))
	rule := bans.Rule{Length: 600_000, After: 3, In: 60_000, Factor: 2000, Max: 86_400_000, Halve: 3_600_000}
	for range 3 {
		exchangeBans(t, s, bans.Ask{Writes: []bans.Write{{Op: bans.Strike, Member: "key api worst", Rule: rule}}})
		clock.Add(1_000)
	}
	for i := range 120 {
		var writes []bans.Write
		for k := range 1_000 {
			writes = append(writes, bans.Write{Op: bans.Strike, Member: fmt.Sprintf("key api %d", 1_000*i+k), Rule: rule})
		}
		exchangeBans(t, s, bans.Ask{Writes: writes})
		clock.Add(1)
	}
	if n := c.HLen(t.Context(), "b:{bans}").Val(); n != bans.MostRecords+1 {
		t.Errorf("%d records", n-1)
	}
	if a := exchangeBans(t, s, bans.Ask{}); len(a.Changes) != 1 || a.Changes[0].Member != "key api worst" || a.Changes[0].Record.Left(a.Now) == 0 {
		t.Errorf("%+v, want the worst to be banned", a)
	}
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

// A record that is not one is written anew.
func TestBansForeignRecord(t *testing.T) {
	for _, text := range []string{"", "x", "1 2 3 4 5 6|", "1 2 3 4 5 6 7", "1 2 3 4 5 6 -7|"} {
		prefix := freshPrefix("foreign")
		if err := server.Client(t).HSet(t.Context(), prefix+":{bans}", "last", 7, "key api anna", text).Err(); err != nil {
			t.Fatal(err)
		}
		server.Client(t).ZAdd(t.Context(), prefix+":{bans}:ends", goredis.Z{Score: 1 << 50, Member: "key api anna"})
		a := exchangeBans(t, redis.Full(newStore(t, redis.Options{Prefix: prefix})), bans.Ask{Writes: []bans.Write{{Op: bans.Set, Member: "key api anna", For: 60_000}}})
		if r := a.Changes[0].Record; r.Change != 8 || r.Level != 0 || r.Forget != a.Now+60_000 {
			t.Errorf("%q: %+v", text, a)
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
