package promises

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestKeys holds the names and types of keys in Redis, and what is in those that outlive the format of counters. TestFormat of
// window/redis holds what is in counters.
func TestKeys(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	open := func(secret string) *redis.Store {
		s := redis.New(redis.Options{
			Addresses: []string{server.Addr}, KeySecret: secret, Timeout: 10 * time.Second,
			Now: func() int64 { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() },
		})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	plain, hashed := open(""), open("a secret of 16 bytes or more")
	var got []string
	written := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		keys := client.Keys(t.Context(), "*").Val()
		if len(keys) == 0 {
			t.Errorf("%s: no key", what)
		}
		for _, key := range keys {
			got = append(got, fmt.Sprintf("%s: %s is a %s", what, key, client.Type(t.Context(), key).Val()))
		}
		client.FlushDB(t.Context())
	}
	charge := window.Charge{Zone: "api", Key: "192.0.2.1", Cost: 1, Policies: []window.Policy{{Limit: 10, Window: 10 * time.Second}}}
	counters := []struct {
		name      string
		algorithm window.Algorithm
		pack      int64
	}{
		{"zset", window.Zset{}, 0},
		{"log", window.Log{}, 0},
		{"stream", window.Stream{}, 0},
		{"gcra", window.GCRA{}, 0},
		{"slices", window.Slices{}, 0},
		{"weighted slices", window.Slices{Count: 10, Weighted: true}, 0},
		{"slices of a size", window.Slices{Size: time.Second}, 0},
		{"adaptive slices", window.Slices{Min: 100 * time.Millisecond, Max: time.Second}, 0},
		{"layers", window.Layers{Coarse: time.Second, Fine: 100 * time.Millisecond}, 0},
		{"packed gcra", window.GCRA{}, 1_000},
		{"packed slices", window.Slices{Count: 3}, 1_000},
		{"concurrent", window.Concurrent{}, 0},
	}
	seen := map[reflect.Type]bool{}
	for _, c := range counters {
		seen[reflect.TypeOf(c.algorithm)] = true
		charge.Algorithm, charge.Pack = c.algorithm, c.pack
		_, err := plain.Take(t.Context(), []window.Charge{charge})
		written(c.name, err)
		_, err = hashed.Take(t.Context(), []window.Charge{charge})
		written(c.name+", with hash_keys", err)
	}
	for _, f := range window.AllFacts() {
		if !seen[reflect.TypeOf(f.Probe)] {
			t.Errorf("no counter here for %T", f.Probe)
		}
	}
	charge.Pack, charge.Algorithm, charge.Lease = 0, window.Zset{}, window.Lease{Units: 2, TTL: time.Second}
	_, err := plain.Take(t.Context(), []window.Charge{charge})
	written("zset, with lease", err)

	for what, s := range map[string]*redis.Store{"": plain, ", with hash_keys": hashed} {
		all := s.Engine()
		_, err := all.(interface {
			WriteOverrides(ctx context.Context, known, next string, gone []string, records map[string]string) (string, error)
		}).WriteOverrides(t.Context(), "", "1", nil, map[string]string{"id": "{}"})
		written("overrides"+what, err)
		_, _, err = all.(interface {
			ExchangeOrders(ctx context.Context, known, next map[string]string, keep time.Duration) (time.Time, map[string]string, error)
		}).ExchangeOrders(t.Context(), map[string]string{"api": ""}, map[string]string{"api": order(t)}, time.Hour)
		written("orders of enforce"+what, err)
		_, err = all.(bans.Store).ExchangeBans(t.Context(), bans.Ask{Writes: []bans.Write{{Op: bans.Set, Member: "key api 192.0.2.1", For: 60_000}}})
		written("bans"+what, err)
		_, err = all.(engine.Instancer).Register(t.Context())
		written("instances, with share"+what, err)
	}
	record := bans.Record{Change: 1, Until: 2, Began: 3, Level: 4, Last: 5, Lifted: 6, Forget: 7, Strikes: []int64{8, 9}, About: "About"}
	got = append(got, "record of bans: "+record.String())
	got = append(got, fields("record of overrides, ", reflect.TypeFor[overrides.Record]())...)
	got = append(got, fields("order of enforce, ", reflect.TypeFor[enforce.Order]())...)
	hold(t, "keys", got)
}

// order returns an order of enforce as Redis has it.
func order(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(enforce.Order{Mode: "shadow", Until: time.Now().Add(time.Hour), At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
