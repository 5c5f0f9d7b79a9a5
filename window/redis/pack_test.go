package redis_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// packed returns a charge of 1 with gcra, packed, on one limit.
func packed(zone, key string, expected, limit int64, length time.Duration) window.Charge {
	c := charge(zone, key, limit, length)
	c.Algorithm, c.Pack = window.GCRA{}, expected
	return c
}

// takeAll takes requests of one charge each, many at a time.
func takeAll(tb testing.TB, s *redis.Store, n int, charge func(i int) window.Charge) {
	tb.Helper()
	for first := 0; first < n; first += 10_000 {
		var requests [][]window.Charge
		for i := first; i < min(n, first+10_000); i++ {
			requests = append(requests, []window.Charge{charge(i)})
		}
		for _, r := range s.TakeBatch(tb.Context(), requests) {
			if r.Err != nil || !r.Decisions[0].Allowed {
				tb.Fatalf("TakeBatch: %+v", r)
			}
		}
	}
}

// TestPackedBytes measures the memory of a server with a packed counter for each of
// 100,000 keys: at most 40 bytes per key, in the encoding of small hashes.
func TestPackedBytes(t *testing.T) {
	const n = 100_000
	for _, test := range []struct {
		name     string
		policies []window.Policy
		most     float64
	}{
		{"a minute", []window.Policy{{Limit: 100, Window: time.Minute}}, 40},
		{"an hour", []window.Policy{{Limit: 1_000, Window: time.Hour}}, 40},
	} {
		own := redistest.Start(t)
		clock := windowtest.NewClock() // nothing expires
		s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: time.Minute, Now: clock.Now}), own.Client(t)
		warm(t, s, "warm")
		before := usedMemory(t, c)
		takeAll(t, s, n, func(i int) window.Charge {
			one := packed("zone", strconv.Itoa(i), n, 1, time.Hour)
			one.Policies = test.policies
			return one
		})
		bytes := float64(usedMemory(t, c)-before) / n
		t.Logf("%s: %.1f bytes per key", test.name, bytes)
		if bytes > test.most {
			t.Errorf("%s: %.1f bytes per key, want %.0f at most", test.name, bytes, test.most)
		}
		wantSmallHashes(t, c, "*:2-pack-gcra:*", n)
	}
}

// wantSmallHashes wants all hashes for n keys to be there, in the encoding of small
// ones.
func wantSmallHashes(t *testing.T, c *goredis.Client, pattern string, n int) {
	t.Helper()
	hashes := keys(t, c, pattern)
	if want := (n + 47) / 48; len(hashes) != want {
		t.Errorf("%d hashes, want %d", len(hashes), want)
	}
	for _, hash := range hashes {
		if encoding := c.ObjectEncoding(t.Context(), hash).Val(); encoding != "listpack" && encoding != "ziplist" {
			t.Fatalf("a hash of %d fields is a %s", c.HLen(t.Context(), hash).Val(), encoding)
		}
	}
}

func usedMemory(t *testing.T, c *goredis.Client) int64 {
	t.Helper()
	return memoryInfo(t, c, "used_memory")
}

// memoryInfo returns what a server says of its memory under a name.
func memoryInfo(t *testing.T, c *goredis.Client, name string) int64 {
	t.Helper()
	for line := range strings.Lines(c.Info(t.Context(), "memory").Val()) {
		if text, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("the server does not tell %s", name)
	return 0
}

// TestPackedNames holds where packed counters are, for a changed place would lose
// every count.
func TestPackedNames(t *testing.T) {
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "names"}), server.Client(t)
	const address = "+\b\x02\n\xfc\b\xb4\xfe\xcdO\xcf\xfc" // the field of 192.0.2.1
	for _, name := range []struct {
		zone, key   string
		expected    int64
		want, field string
	}{
		{"api", "192.0.2.1", 1, "names:2-pack-gcra:api:1:0", address},
		{"api", "192.0.2.1", 48, "names:2-pack-gcra:api:1:0", address},
		{"api", "192.0.2.1", 49, "names:2-pack-gcra:api:2:1", address},
		{"api", "192.0.2.1", 1_000_000, "names:2-pack-gcra:api:20834:20747", address},
		{"a:b", "", 1<<63 - 1, "names:2-pack-gcra:#Z4OjHqv2jMwGYPk1wIJigr3SJB86gKny0Q1Zrqnrtdg:192153584101141163:73774584227262797", "\x9a\xfb\xf4\xc8\x99o\xb9$'\xaeA\xe4"},
	} {
		one := packed(name.zone, name.key, name.expected, 10, time.Hour)
		take(t, s, one)
		if n := c.HLen(t.Context(), name.want).Val(); n != 2 {
			t.Errorf("zone %q, key %q, pack %d: no counter in %s, but there are %q", name.zone, name.key, name.expected, name.want, keys(t, c, "names:*"))
		}
		if !c.HExists(t.Context(), name.want, name.field).Val() {
			t.Errorf("zone %q, key %q: no field %q, but there are %q", name.zone, name.key, name.field, c.HKeys(t.Context(), name.want).Val())
		}
		if err := s.Reset(t.Context(), window.Charge{Zone: name.zone, Key: name.key, Algorithm: window.GCRA{}, Pack: name.expected}); err != nil {
			t.Fatal(err)
		}
		if fields := c.HKeys(t.Context(), name.want).Val(); len(fields) != 1 || fields[0] != "expires" {
			t.Errorf("after a reset, %s has the fields %q", name.want, fields)
		}
		c.Del(t.Context(), name.want)
	}
}

// TestPackedApart has keys of any bytes in few hashes, and zones beside one that is
// not packed or packed otherwise: none counts for another.
func TestPackedApart(t *testing.T) {
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "apart"}), server.Client(t)
	names := []string{"", " ", "\x00", "\xff\xfe", "expires", "{a}", "#", ":", "1:0", "a:b", "é", strings.Repeat("k", 1_000), strings.Repeat("k", 1_001)}
	for i := range 50 {
		names = append(names, strconv.Itoa(i))
	}
	var charges []window.Charge
	for _, zone := range []string{"", "a", "a:1", "1", "{a}", "\n", "pack-gcra"} {
		for _, key := range names {
			for _, expected := range []int64{0, 1, 49} {
				charges = append(charges, packed(zone, key, expected, 1, time.Hour))
			}
		}
	}
	for range 2 {
		for _, one := range charges {
			if d := take(t, s, one)[0]; !d.Allowed {
				t.Fatalf("zone %q, key %q, pack %d: Take = %+v, but nothing was spent", one.Zone, one.Key, one.Pack, d)
			}
		}
		for _, one := range charges {
			if d := take(t, s, one)[0]; d.Allowed {
				t.Fatalf("zone %q, key %q, pack %d: Take = %+v, want a denial", one.Zone, one.Key, one.Pack, d)
			}
		}
		for _, one := range charges { // of one alone
			if err := s.Reset(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
	}
	var batch [][]window.Charge // of definitions that differ in nothing else
	for i := range 10 {
		batch = append(batch, []window.Charge{packed("batch", "key", int64(i%2), 10, time.Hour)})
	}
	for i, r := range s.TakeBatch(t.Context(), batch) {
		if want := int64(9 - i/2); r.Err != nil || r.Decisions[0].Remaining != want {
			t.Errorf("request %d of a batch: %+v, want %d remaining", i, r, want)
		}
	}
	if n := len(keys(t, c, "apart:2-pack-gcra:*")); n != 7*3+1 {
		t.Errorf("%d hashes, want 3 for each zone, and that of the batch", n)
	}
}

// TestPackedShared walks 200 keys of two hashes through random charges, while
// others expire and go, and compares every field with the memory store.
func TestPackedShared(t *testing.T) {
	clock := windowtest.NewClock()
	stores := [2]window.Store{openMemory(t, clock), open(t, clock)}
	c, r := server.Client(t), rand.New(rand.NewPCG(1, 2))
	denials := 0
	for step := range 20_000 {
		clock.Add(r.Int64N(100))
		n := r.IntN(200)
		one := packed("zone", strconv.Itoa(n), 128, int64(1+n%7), time.Duration(1+n%5)*3*time.Second)
		one.Cost = r.Int64N(3)
		two := one
		two.Zone, two.Cost = "other", 1
		charges := []window.Charge{one, two}[:1+r.IntN(2)]
		var got [2][]window.Decision
		for i, s := range stores {
			var err error
			if got[i], err = s.Take(t.Context(), charges); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got[0], got[1]) {
			t.Fatalf("step %d, Take(%+v):\nmemory %+v\nredis  %+v", step, charges, got[0], got[1])
		}
		if !window.Allowed(got[0]) {
			denials++
		}
	}
	t.Logf("%d denials, and fields that are left:", denials)
	for _, hash := range keys(t, c, "*:2-pack-gcra:zone:2:*") {
		t.Logf("%s: %d", hash, c.HLen(t.Context(), hash).Val())
	}
}

// TestPackedPrunes makes new keys come all the time, each of which is over after a
// second. A hash has at most twice the number of fields that come in a second.
func TestPackedPrunes(t *testing.T) {
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "prunes"}), server.Client(t)
	const alive = 64
	var most, last int64
	for i := range 5_000 {
		clock.Add(16)
		take(t, s, packed("zone", strconv.Itoa(i), 1, 1, time.Second))
		if i == 200 {
			take(t, s, packed("zone", "lasts", 1, 1, time.Hour))
		}
		last = c.HLen(t.Context(), "prunes:2-pack-gcra:zone:1:0").Val()
		most = max(most, last)
	}
	t.Logf("%d fields at most, %d at last", most, last)
	if most > 2*alive {
		t.Errorf("%d fields at most, want %d", most, 2*alive)
	}
	if d := take(t, s, packed("zone", "lasts", 1, 1, time.Hour))[0]; d.Allowed {
		t.Errorf("Take = %+v, but what lasts an hour was spent two minutes ago", d)
	}
	if encoding := c.ObjectEncoding(t.Context(), "prunes:2-pack-gcra:zone:1:0").Val(); encoding != "listpack" && encoding != "ziplist" {
		t.Errorf("the hash is a %s", encoding)
	}
}

// TestPackedGoneAtOnce lets a hash expire as soon as it is written, in the middle of a
// batch: what the next counters write into it expires, too.
func TestPackedGoneAtOnce(t *testing.T) {
	c := server.Client(t)
	past := func() int64 { return time.Now().Add(-time.Hour).UnixMilli() }
	s := newStore(t, redis.Options{Prefix: "gone", Now: past})
	var requests [][]window.Charge
	for i := range 3 {
		requests = append(requests, []window.Charge{packed("zone", strconv.Itoa(i), 1, 1, time.Second)})
	}
	for i, r := range s.TakeBatch(t.Context(), requests) {
		if r.Err != nil || !window.Allowed(r.Decisions) {
			t.Errorf("request %d: %+v", i, r)
		}
	}
	if n := c.Exists(t.Context(), "gone:2-pack-gcra:zone:1:0").Val(); n != 0 {
		t.Error("the hash is still there")
	}
}

// TestPackedTTL holds that a hash lives as long as the longest of its counters, and
// up to a quarter longer.
func TestPackedTTL(t *testing.T) {
	s, c := newStore(t, redis.Options{Prefix: "packs"}), server.Client(t)
	const hash = "packs:2-pack-gcra:zone:1:0"
	long, short := packed("zone", "long", 1, 1, 10*time.Second), packed("zone", "short", 1, 1, time.Second)
	settle := func(one window.Charge, delta int64) func() int64 {
		return func() int64 {
			at := serverTime(t, c)
			if err := engine.Settle(t.Context(), s, one, at, delta); err != nil {
				t.Fatal(err)
			}
			return at
		}
	}
	spend := func(charges ...window.Charge) func() int64 {
		return func() int64 { return take(t, s, charges...)[0].At }
	}
	for _, step := range []struct {
		name  string
		spend func() int64
		long  time.Duration // 0: no later than before
	}{
		{"a short one", spend(short), time.Second},
		{"a long one", spend(long), 10 * time.Second},
		{"a short one after it", settle(short, 1), 0},
		{"another short one", spend(packed("zone", "other", 1, 1, time.Second)), 0},
		{"a long and a short one", spend(packed("zone", "longer", 1, 1, 20*time.Second), packed("zone", "shorter", 1, 1, time.Second)), 20 * time.Second},
		{"what is given back", settle(long, -1), 0},
	} {
		from := serverTime(t, c)
		before := c.PTTL(t.Context(), hash).Val()
		at := step.spend()
		left := c.PTTL(t.Context(), hash).Val()
		now := serverTime(t, c)
		if step.long == 0 {
			if before-left > time.Duration(now-from+2)*time.Millisecond || left > before {
				t.Errorf("%s: TTL %s, was %s", step.name, left, before)
			}
			continue
		}
		least := at + step.long.Milliseconds()
		slack := (step.long+100*time.Millisecond).Milliseconds()/4 + 101
		if now+left.Milliseconds()+1 < least || from+left.Milliseconds() > least+slack+now-from {
			t.Errorf("%s: TTL %s at %d, want it to last until %d, and %dms more at most", step.name, left, now, least, slack)
		}
	}
	take(t, s, packed("both", "long", 1, 1, time.Minute), packed("both", "short", 1, 1, 10*time.Second))
	if left := c.PTTL(t.Context(), "packs:2-pack-gcra:both:1:0").Val(); left < 55*time.Second {
		t.Errorf("a long and a short one that come together: TTL %s, want a minute", left)
	}
	brief := packed("brief", "key", 1, 1, 50*time.Millisecond)
	take(t, s, brief)
	eventually(t, patience, "the hash gone", func() bool { return len(keys(t, c, "packs:2-pack-gcra:brief:*")) == 0 })
}

// TestPackedTTLOfBatches has many counters share a hash, and batches in which requests
// differ in cost and limits: whoever is written last, the hash lives as long as the
// counter that lasts longest.
func TestPackedTTLOfBatches(t *testing.T) {
	c := server.Client(t)
	r := rand.New(rand.NewPCG(3, 4))
	limits := [][]window.Policy{
		{{Limit: 100, Window: time.Minute}},
		{{Limit: 2, Window: 2 * time.Minute}},
		{{Limit: 10, Window: 10 * time.Second}, {Limit: 50, Window: time.Hour}},
	}
	for _, algo := range []window.Algorithm{window.GCRA{}, window.Slices{Count: 1, Weighted: true}} {
		clock := windowtest.NewClock()
		s := redis.AskAlways(newStore(t, redis.Options{Now: clock.Now, Prefix: "batches"}))
		for hash := range 200 {
			zone := strconv.Itoa(hash)
			var until int64
			for range 3 {
				clock.Add(r.Int64N(2_000))
				var requests [][]window.Charge
				for range 1 + r.IntN(8) {
					one := charge(zone, strconv.Itoa(r.IntN(3)), 1, time.Hour)
					one.Algorithm, one.Pack, one.Policies = algo, 1, limits[r.IntN(2)]
					if algo.Name() == "gcra" {
						one.Policies = limits[r.IntN(3)]
					}
					if r.IntN(3) == 0 {
						one.Cost = 1 + r.Int64N(one.Policies[0].Limit)
					}
					requests = append(requests, []window.Charge{one})
				}
				for _, result := range s.TakeBatch(t.Context(), requests) {
					if result.Err != nil {
						t.Fatal(result.Err)
					}
					for _, d := range result.Decisions {
						if window.Allowed(result.Decisions) {
							until = max(until, d.At+d.ResetAfter.Milliseconds())
						}
					}
				}
				key := "batches:2-pack-" + algo.Name() + ":" + zone + ":1:0"
				if got := c.PExpireTime(t.Context(), key).Val().Milliseconds(); got < until {
					t.Fatalf("%s lives until %d, and a counter in it until %d", key, got, until)
				}
			}
		}
	}
}

// TestPackedAfterStep has a denial that sets a bucket right after the clock has
// stepped back: the others of the hash stay as they are.
func TestPackedAfterStep(t *testing.T) {
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "stepped"}), server.Client(t)
	one, other := packed("zone", "key", 1, 1, time.Hour), packed("zone", "other", 1, 1, time.Minute)
	take(t, s, one, other)
	before := c.HGetAll(t.Context(), "stepped:2-pack-gcra:zone:1:0").Val()
	clock.Add(-1_000)
	if d := take(t, s, one)[0]; d.Allowed {
		t.Errorf("Take = %+v, want a denial", d)
	}
	after := c.HGetAll(t.Context(), "stepped:2-pack-gcra:zone:1:0").Val()
	changed := 0
	for field, value := range after {
		if before[field] == value || field == "expires" { // which is earlier, as the clock is
			continue
		}
		changed++
		if len(value) != len(before[field]) || value[0] != before[field][0] {
			t.Errorf("%q: %q became %q, want another time alone", field, before[field], value)
		}
	}
	if changed != 1 || len(after) != len(before) {
		t.Errorf("%d of %d fields changed, want 1 of %d", changed, len(after), len(before))
	}
	if left := c.PTTL(t.Context(), "stepped:2-pack-gcra:zone:1:0").Val(); left < time.Hour {
		t.Errorf("TTL %s, want an hour at least", left)
	}
}

// TestPackedDenials remembers a denial for one counter, and asks others that
// differ in how they are packed.
func TestPackedDenials(t *testing.T) {
	s := newStore(t, redis.Options{})
	one := packed("zone", "key", 1, 1, time.Hour)
	take(t, s, one)
	if d := take(t, s, one)[0]; d.Allowed {
		t.Fatalf("Take = %+v, want a denial", d)
	}
	if n, _ := redis.Denials(s).Count(); n != 1 {
		t.Errorf("%d denials remembered, want 1", n)
	}
	for _, expected := range []int64{0, 65, 129} {
		if d := take(t, s, packed("zone", "key", expected, 1, time.Hour))[0]; !d.Allowed {
			t.Errorf("pack %d: Take = %+v, want it to pass", expected, d)
		}
	}
	if err := s.Reset(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if d := take(t, s, one)[0]; !d.Allowed {
		t.Errorf("after a reset: Take = %+v, want it to pass", d)
	}
}

// TestPackedForeign has a field that is not a counter, and a key of another type.
func TestPackedForeign(t *testing.T) {
	c := server.Client(t)
	for _, algo := range []window.Algorithm{window.GCRA{}, window.Slices{Count: 2}} {
		s := redis.AskAlways(newStore(t, redis.Options{Prefix: "alien"}))
		on := func(key string) window.Charge {
			one := packed("zone", key, 1, 5, time.Hour)
			one.Algorithm = algo
			return one
		}
		one, hash := on("key"), "alien:2-pack-"+algo.Name()+":zone:1:0"
		take(t, s, one)
		for field := range c.HGetAll(t.Context(), hash).Val() {
			if field == "expires" || field == "w" {
				continue
			}
			for _, value := range []string{"", "v", "\xff", "\xff\xff\xff", "12\x01", strings.Repeat("\x00", 8), strings.Repeat("\x08", 8), strings.Repeat("\x0b", 11), strings.Repeat("\x0b", 15), strings.Repeat("v", 100)} {
				c.HSet(t.Context(), hash, field, value)
				c.HSet(t.Context(), hash, "foreign", value)
				if _, err := s.Take(t.Context(), []window.Charge{one}); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("%s, %q: Take = %v, want WRONGTYPE", algo.Name(), value, err)
				}
				take(t, s, on(value)) // looks at all fields, for some that are over
			}
		}
		c.HSet(t.Context(), hash, "expires", "1800000000000")
		if _, err := s.Take(t.Context(), []window.Charge{one}); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: Take = %v, want WRONGTYPE", algo.Name(), err)
		}
		c.Set(t.Context(), hash, "v", time.Minute)
		if _, err := s.Take(t.Context(), []window.Charge{one}); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: Take = %v, want WRONGTYPE", algo.Name(), err)
		}
	}
}

// TestPackedSlices measures slices in place of gcra: with one unit per key, and with
// every slice in use, which still leaves hashes small.
func TestPackedSlices(t *testing.T) {
	const n = 20_000
	own := redistest.Start(t)
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: time.Minute, Now: clock.Now}), own.Client(t)
	warm(t, s, "warm")
	before := usedMemory(t, c)
	spend := func() {
		takeAll(t, s, n, func(i int) window.Charge {
			one := packed("zone", strconv.Itoa(i), n, 1_000_000, 24*time.Hour)
			one.Algorithm = window.Slices{Count: windowtest.MaxPackedSlices}
			return one
		})
	}
	spend()
	bytes := float64(usedMemory(t, c)-before) / n
	t.Logf("%.1f bytes per key", bytes)
	if bytes > 40 {
		t.Errorf("%.1f bytes per key, want 40 at most", bytes)
	}
	for range windowtest.MaxPackedSlices {
		clock.Add(1)
		spend()
		clock.Add(8*3_600_000 - 1)
		spend()
	}
	wantSmallHashes(t, c, "*:2-pack-slices:*", n)
}
