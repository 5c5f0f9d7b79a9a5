package redis_test

import (
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestZsetTidiesUp holds that units which have left the window do not count, and that
// they go: by the server's clock, one call of eight removes them.
func TestZsetTidiesUp(t *testing.T) {
	const key, limit, calls = "tidy:2-zset:zone:key", 1_000, 400 // (7/8)^400 is below 10^-23
	s, c := newStore(t, redis.Options{Prefix: "tidy"}), server.Client(t)
	for i := range 10 {
		if err := c.ZAdd(t.Context(), key, goredis.Z{Score: float64(i), Member: "left:" + strconv.Itoa(i)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	horizon := goredis.Z{Score: float64(1<<50 + time.Hour.Milliseconds()), Member: "w"} // of units of an hour
	if err := c.ZAdd(t.Context(), key, horizon).Err(); err != nil {
		t.Fatal(err)
	}
	one := charge("zone", "key", limit, time.Hour)
	for n := int64(1); n <= calls; n++ {
		if d := take(t, s, one)[0]; d.Remaining != limit-n {
			t.Fatalf("call %d: %+v, want %d to remain", n, d, limit-n)
		}
		if left := units(t, c, key) - n; left == 0 {
			return
		} else if left != 10 {
			t.Fatalf("call %d: %d that have left are there, want all or none", n, left)
		}
	}
	t.Errorf("after %d calls, those that have left are still there", calls)
}

// units returns how many members a sorted set has, without the one that is the horizon.
func units(t *testing.T, c *goredis.Client, key string) int64 {
	return c.ZCard(t.Context(), key).Val() - 1
}

// TestZsetMembers holds how many members costs take, and what is left of a cost; that the key
// goes in time, with nothing on it counted twice or lost; and that limits have all digits.
func TestZsetMembers(t *testing.T) {
	const limit, key = 1 << 40, "members:2-zset:zone:key"
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "members"}), server.Client(t)
	one := charge("zone", "key", limit, 8*time.Second) // limit × 8,000 is below 2^53
	for _, step := range []struct {
		cost, back int64 // units that are taken, or given back of what was taken last
		members    int64
		counted    int64
	}{
		0: {cost: 10, members: 1, counted: 10},
		1: {back: 9, members: 1, counted: 1}, // the key was empty in between
		2: {cost: 203, members: 6, counted: 204},
		3: {cost: 1_000, members: 7, counted: 1_204},
		4: {back: 1, members: 33, counted: 1_203},
		5: {back: 990, members: 15, counted: 213},
		6: {back: 10, members: 6, counted: 204}, // there were nine
		7: {cost: limit - 204, members: 61, counted: limit},
		8: {back: limit - 204, members: 6, counted: 204},
	} {
		one.Cost = step.cost
		if step.cost > 0 {
			clock.Add(1)
			if d := take(t, s, one)[0]; !d.Allowed || d.Remaining != limit-step.counted {
				t.Errorf("cost %d: %+v, want %d remaining", step.cost, d, limit-step.counted)
			}
		} else if err := s.GiveBack(t.Context(), one, clock.Now(), step.back); err != nil {
			t.Fatal(err)
		}
		if got := charged(t, s, one); got != step.counted {
			t.Errorf("%+v: %d counted", step, got)
		}
		if got := units(t, c, key); got != step.members {
			t.Errorf("%+v: %d members", step, got)
		}
		if got := c.PTTL(t.Context(), key).Val(); got <= 0 {
			t.Errorf("%+v: the key lives for %s", step, got)
		}
	}
	clock.Add(7_997) // the unit has left
	one.Cost = 1
	take(t, s, one)
	if got := units(t, c, key); got != 6 {
		t.Errorf("%d members, want 203 units and the one that was taken", got)
	}
	clock.Add(1)
	take(t, s, one)
	if got := units(t, c, key); got != 2 {
		t.Errorf("%d members, want those of the two units: what costs more has left, too", got)
	}
}

// TestZsetHorizonName holds that the newest member of a key names the window, as pass/zset.lua wants
// it to, if and only if no other window holds and all members are of one unit.
func TestZsetHorizonName(t *testing.T) {
	const key = "name:2-zset:zone:key"
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "name"}), server.Client(t)
	for i, step := range []struct {
		wait   int64 // ms
		cost   int64
		window time.Duration
		want   string
	}{
		{0, 1, time.Second, "w1000"},
		{1, 9, time.Second, "w1000"},
		{1, 10, time.Second, "w"},
		{1, 1, time.Second, "w"},         // one member is of ten
		{1_500, 1, time.Second, "w"},     // it has left, and is removed now
		{1, 1, time.Second, "w1000"},     // and is gone
		{1, 1, 2 * time.Second, "w2000"}, // a longer window
		{1, 1, 2 * time.Second, "w2000"},
		{1, 1, 500 * time.Millisecond, "t"}, // the longer one is needed still
		{1, 1, 2 * time.Second, "w2000"},
		{3_000, 1, 500 * time.Millisecond, "w500"}, // the key is gone
	} {
		clock.Add(step.wait)
		one := charge("zone", "key", 100, step.window)
		one.Cost = step.cost
		take(t, s, one)
		if got := c.ZRange(t.Context(), key, -1, -1).Val(); len(got) != 1 || got[0] != step.want {
			t.Errorf("step %d: the newest member is %q, want %q", i, got, step.want)
		}
		if n := c.ZCount(t.Context(), key, strconv.FormatInt(1<<50, 10), strconv.FormatInt(1<<51-1, 10)).Val(); n != 1 {
			t.Errorf("step %d: %d members are a window, want 1", i, n)
		}
	}
}

// TestZsetTimes gives back units at times that there are not, which are those of larger
// members to the scores, and counts in the longest window, of 292 years.
func TestZsetTimes(t *testing.T) {
	const far = 1 << 44
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Now: clock.Now})
	one := charge("zone", "key", 900, time.Duration(math.MaxInt64).Truncate(time.Millisecond))
	one.Cost = 123
	take(t, s, one)
	clock.Add(1_000)
	take(t, s, one)
	for _, at := range []int64{math.MinInt64, clock.Now() - far, -1, clock.Now() - 1, clock.Now() + far, far + 1_000, math.MaxInt64} {
		if err := s.GiveBack(t.Context(), one, at, 200); err != nil {
			t.Error(err)
		}
		if got := charged(t, s, one); got != 246 {
			t.Fatalf("%d counted after none was given back at %d, want 246", got, at)
		}
	}
	one.Cost = 777
	if d := take(t, s, one)[0]; d.Allowed || d.RetryAfter != one.Policies[0].Window-time.Second {
		t.Errorf("cost 777 of 900: %+v, want a denial until the first 123 have left", d)
	}
}

// TestZsetWithoutMemory gives back a part of a cost on a server that is full. What stays is
// written anew, after something was removed: it is not lost.
func TestZsetWithoutMemory(t *testing.T) {
	own, clock := redistest.Start(t), windowtest.NewClock()
	s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now}), own.Client(t)
	one := charge("zone", "key", 2_000, time.Hour)
	one.Cost = 1_000
	take(t, s, one)
	if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(t.Context(), []window.Charge{one}); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("Take = %v, want ErrUnavailable: there is no memory", err)
	}
	if err := s.GiveBack(t.Context(), one, clock.Now(), 1); err != nil {
		t.Error(err)
	}
	if got := charged(t, s, one); got != 999 {
		t.Errorf("%d counted after one of 1,000 was given back", got)
	}
}
