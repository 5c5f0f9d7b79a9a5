package redis_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestUnitCommands holds which commands a unit of one policy takes that passes on a key that is there.
func TestUnitCommands(t *testing.T) {
	for _, test := range []struct {
		algo window.Algorithm
		want string
	}{
		{window.Zset{}, "pexpireat zadd zcount zcount"}, // one zcount to tidy up: a call of eight on the clock of a server
		{window.Log{}, "mget setrange"},
		{window.Slices{}, "hgetall hset"},
		{window.GCRA{}, "get set"},
	} {
		t.Run(test.algo.Name(), func(t *testing.T) {
			own, clock := redistest.Start(t), windowtest.NewClock()
			s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now}), own.Client(t)
			one := charge("zone", "key", 10, time.Minute)
			one.Algorithm = test.algo
			take(t, s, one)
			c.ConfigResetStat(t.Context())
			clock.Add(1)
			take(t, s, one)
			var got []string
			for _, m := range commandStats.FindAllStringSubmatch(c.Info(t.Context(), "commandstats").Val(), -1) {
				if n, _ := strconv.Atoi(m[2]); m[1] != "evalsha" && m[1] != "config" {
					got = slices.Concat(got, slices.Repeat([]string{m[1]}, n))
				}
			}
			slices.Sort(got)
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestMissingCommandIsNamed takes one command after the other away from a server: the error names
// that command, and nothing of what was sent.
func TestMissingCommandIsNamed(t *testing.T) {
	packed := charge("zone", "s3cret-key", 10, time.Hour)
	packed.Algorithm, packed.Pack = window.GCRA{}, 10_000
	for _, permission := range append(strings.Fields(redis.Permissions), "+cluster|slots") {
		name := strings.TrimPrefix(permission, "+")
		name, _, _ = strings.Cut(name, "|")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "--rename-command", strings.ToUpper(name), "")
			store := newStore(t, redis.Options{Addresses: []string{s.Addr}, Timeout: patience, Cluster: name == "cluster"})
			var errs []error
			requests := []window.Charge{packed}
			for _, algo := range algorithms {
				c := charge("zone", "s3cret-key", 3, time.Hour)
				c.Algorithm = suited(algo, time.Hour)
				requests = append(requests, c)
			}
			for _, c := range requests {
				for range 5 {
					_, err := store.Take(t.Context(), []window.Charge{c})
					errs = append(errs, err, store.GiveBack(t.Context(), c, 1, 1), store.ChargeMore(t.Context(), c, 1))
				}
				_, err := store.Peek(t.Context(), []window.Charge{c})
				errs = append(errs, err, store.Reset(t.Context(), c))
			}
			named := 0
			for _, err := range errs {
				if err == nil {
					continue
				}
				want, cure := "("+strings.ToUpper(name)+" was renamed, or does not exist here)", "rename-command"
				if name == "hset" && strings.Contains(err.Error(), "a command was renamed") { // a line for several commands
					want, cure = "a command was renamed", "+hset"
				}
				if named++; !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), cure) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("error %q, want %q, a cure and no key", err, want)
				}
			}
			if needed := name != "hrandfield" && name != "hlen" && !strings.HasPrefix(name, "x") && !strings.HasPrefix(name, "zrem"); needed && named == 0 {
				t.Errorf("nothing needs %s", name)
			}
		})
	}
}
