package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// settledCharges are one of each kind that has receipts, on a limit of 10 in a minute.
func settledCharges() (all []window.Charge) {
	for i, algo := range []window.Algorithm{
		window.Zset{},
		window.Log{},
		window.Stream{},
		window.Slices{Count: 10},
		window.Slices{Count: 10, Weighted: true},
		window.Layers{Coarse: time.Second, Fine: time.Second},
		window.Slices{Min: time.Millisecond, Max: time.Second},
		window.Slices{Count: 2},
	} {
		c := charge("zone", fmt.Sprint("key ", i), 10, time.Minute)
		if c.Algorithm = algo; i == 7 {
			c.Pack = 1000
		}
		all = append(all, c)
	}
	return all
}

// admit takes a charge, and returns its receipt.
func admit(t *testing.T, s window.Store, c window.Charge) *engine.Receipt {
	t.Helper()
	ds, err := s.Take(t.Context(), []window.Charge{c})
	if err != nil || !ds[0].Allowed {
		t.Fatalf("Take = %+v, %v", ds, err)
	}
	return &engine.Receipt{Charge: c, At: ds[0].At, Former: ds[0].Former}
}

// left returns what remains of a charge's limit.
func left(t *testing.T, s window.Store, c window.Charge) int64 {
	t.Helper()
	ds, err := s.Peek(t.Context(), []window.Charge{c})
	if err != nil {
		t.Fatal(err)
	}
	return ds[0].Remaining
}

// TestSettleBatch settles receipts of every kind together, as memory does: with one secret, with
// two, and in a Cluster.
func TestSettleBatch(t *testing.T) {
	secret, former := strings.Repeat("a", 32), strings.Repeat("b", 32)
	nodes := redistest.StartCluster(t, 3)
	addresses := []string{nodes[0].Addr, nodes[1].Addr, nodes[2].Addr}
	clock := windowtest.NewClock()
	stores := map[string]window.Store{
		"memory":      memory.New(memory.Options{Now: clock.Now, SweepInterval: -1}),
		"redis":       redis.Full(newStore(t, redis.Options{Prefix: "settles", Now: clock.Now})),
		"two secrets": redis.Full(newStore(t, redis.Options{Prefix: "settles", KeySecret: secret, FormerKeySecret: former, Now: clock.Now})),
		"cluster":     redis.Full(newStore(t, redis.Options{Addresses: addresses, Now: clock.Now})),
		"two secrets in a cluster": redis.Full(newStore(t, redis.Options{
			Addresses: addresses, Prefix: "twice",
			KeySecret: secret, FormerKeySecret: former,
		})), // each server has its own time
	}
	for name, s := range stores {
		t.Run(name, func(t *testing.T) {
			var all []engine.Settlement
			charges := settledCharges()
			for _, c := range charges {
				for _, units := range []int64{0, 1, 4} {
					one, _ := admit(t, s, c).Settle(units)
					all = append(all, one)
					clock.Add(1)
				}
			}
			for i, err := range engine.SettleBatch(t.Context(), s, all) {
				if err != nil {
					t.Errorf("settlement %d: %v", i, err)
				}
			}
			for _, c := range charges {
				if n := left(t, s, c); n != 5 {
					t.Errorf("%v: %d remain, want 5", c.Algorithm, n)
				}
			}
		})
	}
}

// TestSettleForFormer gives back in a Cluster what stores count that know one of two secrets only.
func TestSettleForFormer(t *testing.T) {
	secret, former := strings.Repeat("a", 32), strings.Repeat("b", 32)
	nodes := redistest.StartCluster(t, 3)
	open := func(current, former string) *redis.Store {
		return newStore(t, redis.Options{Addresses: []string{nodes[0].Addr}, Cluster: true, KeySecret: current, FormerKeySecret: former})
	}
	both, old, young := open(secret, former), open(former, ""), open(secret, "")
	for i := range 20 { // the names are on nodes of their own
		c := charge("zone", fmt.Sprint("key ", i), 10, time.Minute)
		one, _ := admit(t, both, c).Settle(0)
		if err := redis.Full(both).SettleBatch(t.Context(), []engine.Settlement{one})[0]; err != nil {
			t.Error(err)
		}
		if a, b := left(t, old, c), left(t, young, c); a != 10 || b != 10 {
			t.Errorf("under the former name %d remain, and %d under the new one, want 10 each", a, b)
		}
	}
}

// TestSettleVerdicts has one of many settlements meet something else in place of its counter.
func TestSettleVerdicts(t *testing.T) {
	s := newStore(t, redis.Options{Prefix: "verdicts"})
	var all []engine.Settlement
	for i := range 5 {
		c := charge("zone", fmt.Sprint("key ", i), 10, time.Minute)
		one, _ := admit(t, s, c).Settle(0)
		all = append(all, one)
	}
	foreign := all[2].Charge
	client := server.Client(t)
	client.Del(t.Context(), redis.Full(s).CounterName(foreign))
	if err := client.LPush(t.Context(), redis.Full(s).CounterName(foreign), "else").Err(); err != nil {
		t.Fatal(err)
	}
	for i, err := range redis.Full(s).SettleBatch(t.Context(), all) {
		if i == 2 {
			if !errors.Is(err, window.ErrForeign) {
				t.Errorf("settlement 2: %v, want ErrForeign", err)
			}
			continue
		}
		if n := left(t, s, all[i].Charge); err != nil || n != 10 {
			t.Errorf("settlement %d: %v, and %d remain, want 10", i, err, n)
		}
	}
}

// TestSettleBatchIsOneCall counts what a batch costs the server: one call of the script, and in it
// few commands a unit.
func TestSettleBatchIsOneCall(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	client := own.Client(t)
	for _, c := range settledCharges() {
		var all []engine.Settlement
		for i := range 10 {
			c.Key = fmt.Sprint("key ", i)
			one, _ := admit(t, s, c).Settle(0)
			admit(t, s, c)
			all = append(all, one)
		}
		client.ConfigResetStat(t.Context())
		if err := errors.Join(redis.Full(s).SettleBatch(t.Context(), all)...); err != nil {
			t.Errorf("%v: %v", c.Algorithm, err)
		}
		stats := client.Info(t.Context(), "commandstats").Val()
		scripts, commands := statsOf(t, stats)
		most := 3
		switch c.Algorithm.(type) {
		case window.Zset:
			most = 4
		case window.Stream:
			most = 12
		}
		if scripts != 1 || commands > 10*most {
			t.Errorf("%T: %d calls of the script, and %d commands for 10 units, want 1 and %d at most:\n%s", c.Algorithm, scripts, commands, 10*most, stats)
		}
	}
}

// statsOf reads how often scripts were run, and how often other commands that scripts run.
func statsOf(t *testing.T, stats string) (scripts, commands int) {
	t.Helper()
	for line := range strings.Lines(stats) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(rest, "%d,", &n); err != nil {
			t.Fatal(err)
		}
		switch {
		case name == "evalsha":
			scripts += n
		case name != "time" && !strings.HasPrefix(name, "config") && name != "info" && name != "hello" && name != "client":
			commands += n
		}
	}
	return scripts, commands
}

// TestReceiptsRefused names what has no receipts.
func TestReceiptsRefused(t *testing.T) {
	for i, c := range []struct {
		algorithm window.Algorithm
		lease     window.Lease
		want      string
	}{
		{window.GCRA{}, window.Lease{}, "algorithm gcra"},
		{window.GCRA{Native: window.NativeOn}, window.Lease{}, "algorithm gcra"},
		{window.Zset{}, window.Lease{Units: 8, TTL: time.Second}, "lease 8"},
		{window.Log{}, window.Lease{}, ""},
	} {
		err := engine.CheckReceipts(c.algorithm, c.lease)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("case %d: %v, want %q", i, err, c.want)
		}
	}
}
