package redis_test

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestTTL holds that every call leaves keys that live as long as they matter, and
// no longer than 100 ms more, with log and gcra a quarter more, or twice that.
func TestTTL(t *testing.T) {
	s := newStore(t, redis.Options{Prefix: "ttl"})
	c := server.Client(t)
	for _, algo := range algorithms {
		for _, length := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond, 10 * time.Second} {
			one := charge("zone", length.String(), 5, length)
			one.Algorithm = suited(algo, length/2)
			long := one
			long.Policies = append([]window.Policy{{Limit: 5, Window: length / 2}}, one.Policies...)
			if length == time.Millisecond {
				long = one
			}
			settle := func(w window.Charge) {
				if err := s.ChargeMore(t.Context(), w, 3); err != nil {
					t.Fatal(err)
				}
			}
			began := serverTime(t, c)
			for step, call := range []struct {
				charge window.Charge
				run    func(window.Charge)
			}{
				{one, func(w window.Charge) { take(t, s, w) }},
				{long, func(w window.Charge) { take(t, s, w) }},
				{one, settle},
			} {
				from := serverTime(t, c)
				call.run(call.charge)
				ds, err := s.Peek(t.Context(), []window.Charge{call.charge})
				if err != nil {
					t.Fatal(err)
				}
				matters := ds[0].At // until then
				for _, d := range ds {
					matters = max(matters, d.At+d.ResetAfter.Milliseconds())
				}
				slack, needed := int64(100), matters-from
				switch algo.(type) {
				case window.Log, window.Slices:
					slack = max(slack, needed/4)
				case window.GCRA:
					needed += from - began // buckets of other windows are kept for a whole one
					slack += (needed + slack) / 4
				}
				left := c.PTTL(t.Context(), "ttl:2-"+algo.Name()+":zone:"+length.String()).Val()
				now := serverTime(t, c)
				switch {
				case left == -1:
					t.Errorf("%s, step %d: no TTL", algo.Name(), step)
				case left.Milliseconds() > needed+min(needed, slack):
					t.Errorf("%s, step %d: TTL %s after %d, want at most %d ms more than the time until %d, and twice that time", algo.Name(), step, left, from, slack, matters)
				case now+max(0, left.Milliseconds())+1 < matters:
					t.Errorf("%s, step %d: TTL %s before %d, want at least the time until %d", algo.Name(), step, left, now, matters)
				}
			}
			if length == 10*time.Second {
				c.Del(t.Context(), keys(t, c, "ttl:*:10s")...)
			}
		}
	}
	eventually(t, patience, "all keys gone", func() bool { return len(keys(t, c, "ttl:*")) == 0 })
}

// wantExpiry holds that a key lives until it is reset, and no more than a quarter
// longer.
func wantExpiry(t *testing.T, c *goredis.Client, key string, unit int, now int64, reset time.Duration) {
	t.Helper()
	least := now + reset.Milliseconds()
	until := c.PExpireTime(t.Context(), key).Val().Milliseconds()
	if most := least + 100 + (reset.Milliseconds()+100)/4; until < least || until > most {
		t.Fatalf("%s, unit %d: the key lives until %d, want %d at least, and %d at most", key, unit, until, least, most)
	}
}

// TestTTLGrows fills buckets unit by unit: the key lives as long as the fullest needs,
// though most units are written in place, without a time for the key.
func TestTTLGrows(t *testing.T) {
	own, clock := redistest.Start(t), windowtest.NewClock()
	s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now, Prefix: "grows"}), own.Client(t)
	for name, policies := range map[string][]window.Policy{
		"one": {{Limit: 1_000, Window: time.Minute}},
		"two": {{Limit: 1_000, Window: time.Minute}, {Limit: 200, Window: 10 * time.Second}},
	} {
		one := window.Charge{Zone: "zone", Key: name, Cost: 1, Algorithm: window.GCRA{}, Policies: policies}
		c.ConfigResetStat(t.Context())
		for i := range 100 {
			clock.Add(7)
			reset := take(t, s, one)[0].ResetAfter
			wantExpiry(t, c, "grows:2-gcra:zone:"+name, i, clock.Now(), reset)
		}
		if whole, inPlace := commandCalls(t, c, "set"), commandCalls(t, c, "setrange"); whole+inPlace != 100 || inPlace < 70 {
			t.Errorf("%s: %d written whole and %d in place, want 100 in all, and 70 in place at least", name, whole, inPlace)
		}
	}
}

// TestTTLOfOldKeys charges keys for longer than their windows: they live as long as
// what was charged last matters, and not much longer.
func TestTTLOfOldKeys(t *testing.T) {
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "old"}), server.Client(t)
	second, minute := window.Policy{Limit: 1_000, Window: 10 * time.Second}, window.Policy{Limit: 1_000, Window: time.Minute}
	for _, algo := range algorithms {
		for name, one := range map[string]window.Charge{
			"one": {Cost: 1, Policies: []window.Policy{minute}},
			"two": {Cost: 2, Policies: []window.Policy{second, minute}},
		} {
			one.Zone, one.Key, one.Algorithm = "zone", name, algo
			for i := range 150 {
				clock.Add(700)
				var reset time.Duration
				for _, d := range take(t, s, one) {
					reset = max(reset, d.ResetAfter)
				}
				wantExpiry(t, c, "old:2-"+algo.Name()+":zone:"+name, i, clock.Now(), reset)
			}
		}
	}
}

// TestTTLAfterGiveBack gives back what a request with a short window was charged, after
// another with a long one: the key lives as long as that needs. A stream is written anew,
// and does not know.
func TestTTLAfterGiveBack(t *testing.T) {
	clock := windowtest.NewClock()
	prefix := freshPrefix("back")
	s, c := redis.AskAlways(newStore(t, redis.Options{Now: clock.Now, Prefix: prefix})), server.Client(t)
	for i, algo := range append(algorithms, window.Slices{Min: 10 * time.Millisecond, Max: time.Second}, window.Slices{Count: 1, Weighted: true}) {
		switch algo.(type) {
		case window.Stream:
			continue
		case window.Layers:
			algo = window.Layers{Coarse: 10 * time.Second, Fine: time.Second}
		}
		short, long := charge(strconv.Itoa(i), "key", 10, 10*time.Second), charge(strconv.Itoa(i), "key", 10, time.Hour)
		short.Algorithm, long.Algorithm, long.Cost = algo, algo, 8
		at := take(t, s, short)[0].At
		clock.Add(1_000)
		until := clock.Now() + take(t, s, long)[0].ResetAfter.Milliseconds()
		clock.Add(1_000)
		if err := s.GiveBack(t.Context(), short, at, 1); err != nil {
			t.Fatal(err)
		}
		if got := c.PExpireTime(t.Context(), prefix+":2-"+algo.Name()+":"+long.Zone+":key").Val().Milliseconds(); got < until {
			t.Errorf("%+v: the key lives until %d, and what it holds until %d", algo, got, until)
		}
	}
}

// TestLayersIdle has few slices and a long time between them: what is forgotten then
// is as much as there is, not as much as there might be.
func TestLayersIdle(t *testing.T) {
	own, clock := redistest.Start(t), windowtest.NewClock()
	s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now, Prefix: "idle"}), own.Client(t)
	one := window.Charge{
		Zone: "zone", Key: "key", Cost: 1, Algorithm: window.Layers{Coarse: 10 * time.Second, Fine: 20 * time.Millisecond},
		Policies: []window.Policy{{Limit: 1_000, Window: time.Hour}},
	}
	for i, pause := range []time.Duration{0, time.Second, 59 * time.Minute, time.Second, time.Hour, time.Second, 100 * time.Hour} {
		clock.Add(pause.Milliseconds())
		c.ConfigResetStat(t.Context())
		take(t, s, one)
		// A thousand names go into one call.
		if n := commandCalls(t, c, "hdel"); n > 1 {
			t.Errorf("request %d, after %s: HDEL was called %d times", i, pause, n)
		}
	}
	if fields := c.HKeys(t.Context(), "idle:2-layers:zone:key").Val(); len(fields) != 2 {
		t.Errorf("in the end there are the fields %q, want the open slices and the history only", fields)
	}
}

// TestTTLAfterStep has a denial that sets a bucket right after the clock has
// stepped back.
func TestTTLAfterStep(t *testing.T) {
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "step"}), server.Client(t)
	one := charge("zone", "key", 1, time.Hour)
	one.Algorithm = window.GCRA{}
	take(t, s, one)
	clock.Add(-1_000)
	if d := take(t, s, one)[0]; d.Allowed {
		t.Errorf("Take = %+v, want a denial", d)
	}
	const key = "step:2-gcra:zone:key"
	var at [8]byte
	copy(at[2:], c.Get(t.Context(), key).Val())
	if at := int64(binary.BigEndian.Uint64(at[:])); at != clock.Now() {
		t.Errorf("the state is that of %d, want %d", at, clock.Now())
	}
	if left := c.PTTL(t.Context(), key).Val(); left < time.Hour {
		t.Errorf("TTL %s, want an hour at least", left)
	}
}

func keys(t *testing.T, c *goredis.Client, pattern string) []string {
	t.Helper()
	found, err := c.Keys(t.Context(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func serverTime(t *testing.T, c *goredis.Client) int64 {
	t.Helper()
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now.UnixMilli()
}

// TestDenialWritesNothing asks the server how many changes it has seen.
func TestDenialWritesNothing(t *testing.T) {
	own := redistest.Start(t)
	s, c := redis.AskAlways(newStore(t, redis.Options{Addresses: []string{own.Addr}})), own.Client(t)
	changes := func() string {
		for line := range strings.Lines(c.Info(t.Context(), "persistence").Val()) {
			if n, ok := strings.CutPrefix(line, "rdb_changes_since_last_save:"); ok {
				return n
			}
		}
		t.Fatal("the server does not count changes")
		return ""
	}
	all := []window.Charge{packed("full", "key", 1, 2, time.Hour)}
	for _, algo := range algorithms {
		c := charge("full", "key", 2, time.Hour)
		c.Algorithm = suited(algo, time.Hour)
		all = append(all, c)
	}
	for _, free := range all {
		full, algo := free, free.Algorithm
		full.Cost, free.Zone = 2, "free"
		take(t, s, full)
		want := changes()
		for range 10 {
			if ds := take(t, s, free, full); window.Allowed(ds) {
				t.Fatalf("Take = %+v, want a denial", ds)
			}
			take(t, s, full, free)
			if _, err := s.Peek(t.Context(), []window.Charge{full, free}); err != nil {
				t.Fatal(err)
			}
			look := full
			look.Cost = 0
			take(t, s, look)
		}
		if got := changes(); got != want {
			t.Errorf("%s: %s changes after denials, want %s", algo.Name(), got, want)
		}
	}
}

// TestSlicesMemory holds the number of fields that slices need at most.
func TestSlicesMemory(t *testing.T) {
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Now: clock.Now, Prefix: "memory"})
	c := server.Client(t)
	for _, count := range []int64{1, 7, 60} {
		one := charge("zone", strconv.FormatInt(count, 10), 1_000_000, time.Minute)
		one.Algorithm = window.Slices{Count: count}
		var most int64
		for range 2_000 {
			clock.Add(41)
			take(t, s, one)
			most = max(most, c.HLen(t.Context(), "memory:2-slices:zone:"+one.Key).Val())
		}
		if most < count || most > count+2 {
			t.Errorf("%d slices: %d fields at most, want %d and the horizon", count, most, count+1)
		}
	}
}

func TestWrongType(t *testing.T) {
	s, c := newStore(t, redis.Options{Prefix: "foreign"}), server.Client(t)
	free := charge("free", "key", 2, time.Hour)
	for _, algo := range algorithms {
		for value, set := range map[string]func(key string){
			"a string": func(key string) { c.Set(t.Context(), key, "v", time.Minute) },
			"a set":    func(key string) { c.Del(t.Context(), key); c.SAdd(t.Context(), key, "v") },
		} {
			set("foreign:2-" + algo.Name() + ":zone:key")
			foreign := charge("zone", "key", 2, time.Hour)
			foreign.Algorithm = suited(algo, time.Hour)
			_, err := s.Take(t.Context(), []window.Charge{free, foreign})
			if !errors.Is(err, window.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%s, %s: Take = %v, want ErrUnavailable and WRONGTYPE", algo.Name(), value, err)
			}
		}
	}
	if d := take(t, s, free)[0]; d.Remaining != 1 {
		t.Errorf("Take = %+v, want 1 remaining", d)
	}
}

// TestForeignContent has keys of the right type that somebody else has made.
func TestForeignContent(t *testing.T) {
	s, c := newStore(t, redis.Options{Prefix: "content"}), server.Client(t)
	contents := map[string]func(key string) error{
		"gcra":   func(key string) error { return c.Set(t.Context(), key, "v", time.Minute).Err() },
		"log":    func(key string) error { return c.RPush(t.Context(), key, "v").Err() },
		"slices": func(key string) error { return c.HSet(t.Context(), key, "field", "v").Err() },
		"stream": func(key string) error {
			return c.XAdd(t.Context(), &goredis.XAddArgs{Stream: key, Values: []string{"field", "v"}}).Err()
		},
	}
	for _, algo := range algorithms {
		set := contents[algo.Name()]
		if set == nil {
			continue // zset reads scores, which all sorted sets have, and layers fields by their names
		}
		if err := set("content:2-" + algo.Name() + ":zone:key"); err != nil {
			t.Fatal(err)
		}
		foreign := charge("zone", "key", 2, time.Hour)
		foreign.Algorithm = suited(algo, time.Hour)
		if ds, err := s.Take(t.Context(), []window.Charge{foreign}); !errors.Is(err, window.ErrForeign) {
			t.Errorf("%s: Take = %+v, %v; want ErrForeign", algo.Name(), ds, err)
		}
	}
}
