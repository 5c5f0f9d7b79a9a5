package redis_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// streamTest is a store with one counter of a stream.
type streamTest struct {
	*testing.T
	clock *windowtest.Clock
	store *redis.Store
	redis *goredis.Client
	key   string
	one   window.Charge // limit 10 in 10 s
}

func newStreamTest(t *testing.T, keep time.Duration) *streamTest {
	clock := windowtest.NewClock()
	prefix := freshPrefix("stream")
	one := charge("zone", "key", 10, 10*time.Second)
	one.Algorithm = window.Stream{Keep: keep}
	return &streamTest{
		T: t, clock: clock, redis: server.Client(t), key: prefix + ":2-stream:zone:key", one: one,
		store: redis.AskAlways(newStore(t, redis.Options{Now: clock.Now, Prefix: prefix})),
	}
}

// at moves the clock to a time after its start.
func (s *streamTest) at(ms int64) { s.clock.Set(windowtest.Start + ms) }

func (s *streamTest) take(cost int64, fields ...string) window.Decision {
	s.Helper()
	c := s.one
	c.Cost, c.Fields = cost, fields
	return take(s.T, s.store, c)[0]
}

// giveBack gives back units of a time after the clock's start.
func (s *streamTest) giveBack(at, units int64, fields ...string) {
	s.Helper()
	c := s.one
	c.Fields = fields
	if err := s.store.GiveBack(s.Context(), c, windowtest.Start+at, units); err != nil {
		s.Fatal(err)
	}
}

func (s *streamTest) chargeMore(units int64, fields ...string) {
	s.Helper()
	c := s.one
	c.Fields = fields
	if err := s.store.ChargeMore(s.Context(), c, units); err != nil {
		s.Fatal(err)
	}
}

// wantRemaining looks at what is left of the limit.
func (s *streamTest) wantRemaining(want int64) {
	s.Helper()
	ds, err := s.store.Peek(s.Context(), []window.Charge{s.one})
	if err != nil || ds[0].Remaining != want {
		s.Errorf("Peek = %+v, %v, want %d remaining", ds, err, want)
	}
}

// entry is what XRANGE returns for one: fields and values in order.
type entry struct {
	ms    int64 // after the clock's start
	words []string
}

func (s *streamTest) entries() []entry {
	s.Helper()
	raw, err := s.redis.Do(s.Context(), "XRANGE", s.key, "-", "+").Slice()
	if err != nil {
		s.Fatal(err)
	}
	var entries []entry
	for _, r := range raw {
		pair := r.([]any)
		ms, _, _ := strings.Cut(pair[0].(string), "-")
		at, _ := strconv.ParseInt(ms, 10, 64)
		e := entry{ms: at - windowtest.Start}
		for _, word := range pair[1].([]any) {
			e.words = append(e.words, word.(string))
		}
		entries = append(entries, e)
	}
	return entries
}

// wantEntries compares all that is readable, written as "<ms> <cost> <total>" and
// the charge's fields.
func (s *streamTest) wantEntries(want ...string) {
	s.Helper()
	var got []string
	for _, e := range s.entries() {
		if len(e.words) < 6 || e.words[0] != "cost" || e.words[2] != "total" || e.words[4] != "gone" {
			s.Errorf("entry %q, want cost, total and gone first", e.words)
			continue
		}
		got = append(got, strings.Join(append([]string{strconv.FormatInt(e.ms, 10), e.words[1], e.words[3]}, e.words[6:]...), " "))
	}
	if !slices.Equal(got, want) {
		s.Errorf("entries %q, want %q", got, want)
	}
}

// TestStreamReadable holds that one entry is readable per admitted request, in order,
// with the time, the cost and the fields of each.
func TestStreamReadable(t *testing.T) {
	s := newStreamTest(t, time.Hour)
	r := rand.New(rand.NewPCG(1, 1))
	var want []string
	var total int64
	denied := 0
	for n := range 600 {
		s.clock.Add(r.Int64N(1_500))
		cost := r.Int64N(4)
		d := s.take(cost, "user", fmt.Sprint("u", n%7), "path", fmt.Sprint("/", n))
		if !d.Allowed {
			denied++
		}
		if d.Allowed && cost > 0 {
			total += cost
			want = append(want, fmt.Sprintf("%d %d %d user u%d path /%d", d.At-windowtest.Start, cost, total, n%7, n))
		}
	}
	s.wantEntries(want...)
	t.Logf("%d admitted, %d denied", len(want), denied)
	if denied < 100 || len(want) < 100 {
		t.Error("too few of either")
	}
}

// TestStreamBytes holds that every byte survives, also when entries are written
// anew because others are given back or lie in the future.
func TestStreamBytes(t *testing.T) {
	s := newStreamTest(t, 0)
	s.one.Policies[0].Limit = 1000
	values := []string{
		"", "\x00", "a\x00b", "\xff\xfe", "\r\n", "ü", " 1", "1", "-1", "007", "1e5", "9223372036854775807", "9007199254740993", "18446744073709551616",
		strings.Repeat("\x00\xff", 500_000), "\"'\\", "$1", "*", "{a}",
	}
	var all []string
	for i, v := range values {
		all = append(all, v+strconv.Itoa(i), v)
	}
	s.take(1, "first", "1")
	s.at(10)
	s.take(1, all...)
	s.at(20)
	for _, v := range values {
		s.take(1, "value", v)
	}
	check := func(what string, first int) {
		t.Helper()
		entries := s.entries()
		if len(entries) != first+1+len(values) {
			t.Fatalf("%s: %d entries, want %d", what, len(entries), first+1+len(values))
		}
		if !slices.Equal(entries[first].words[6:], all) {
			t.Errorf("%s: the entry with all fields has changed", what)
		}
		for i, v := range values {
			if e := entries[first+1+i]; !slices.Equal(e.words[6:], []string{"value", v}) {
				t.Errorf("%s: entry %d has %.40q, want %.40q", what, i, e.words[6:], v)
			}
		}
	}
	check("as written", 1)
	s.giveBack(0, 1)
	check("after the first was given back", 0)
	s.at(5)
	s.take(1001)
	check("after the clock stepped back", 0)
}

// TestStreamTrims holds when entries end to count, and when they end to be
// readable, to the millisecond.
func TestStreamTrims(t *testing.T) {
	for keep, until := range map[time.Duration]int64{0: 10_000, 5 * time.Second: 10_000, 10*time.Second + time.Millisecond: 10_001, 25 * time.Second: 25_000} {
		s := newStreamTest(t, keep)
		s.take(9, "n", "1")
		s.at(9_999)
		s.wantRemaining(1)
		s.take(1, "n", "2")
		s.wantEntries("0 9 9 n 1", "9999 1 10 n 2")
		s.at(10_000)
		s.wantRemaining(9)
		if d := s.take(10); d.Allowed || d.RetryAfter != 9_999*time.Millisecond {
			t.Errorf("keep %s: Take = %+v, want a wait of 9.999s", keep, d)
		}
		s.wantEntries("0 9 9 n 1", "9999 1 10 n 2") // a denial takes nothing away
		s.at(until - 1)
		if until > 10_000 {
			s.take(1, "n", "3")
			s.wantEntries("0 9 9 n 1", "9999 1 10 n 2", fmt.Sprint(until-1, " 1 11 n 3"))
		} else {
			s.at(9_999)
			s.take(0)
			s.wantEntries("0 9 9 n 1", "9999 1 10 n 2")
		}
		s.at(until)
		s.take(1, "n", "4")
		if got := s.entries(); got[0].ms != 9_999 {
			t.Errorf("keep %s: at %d the first is %+v, want that of 9999", keep, until, got[0])
		}
	}
}

// TestStreamForgets holds that what is kept counts no more, when windows are
// raised and when the clock steps back either.
func TestStreamForgets(t *testing.T) {
	s := newStreamTest(t, time.Hour)
	for range 5 {
		s.take(2)
		s.clock.Add(10_000)
	}
	s.take(1)
	s.one.Policies = []window.Policy{{Limit: 10, Window: time.Minute}}
	s.wantRemaining(9)
	s.take(1)
	s.at(15_000)
	s.wantRemaining(8)
	s.take(3)
	s.wantRemaining(5)
	s.wantEntries("0 2 2", "10000 2 4", "15000 2 6", "15000 2 8", "15000 2 10", "15000 1 11", "15000 1 12", "15000 3 15")
	s.giveBack(0, 2) // long gone
	s.wantRemaining(5)
	s.clock.Add(60_000)
	s.wantRemaining(10)
}

// TestStreamGone gives back what has left the window and is kept: it does not count
// any more, so that there is nothing to give.
func TestStreamGone(t *testing.T) {
	s := newStreamTest(t, time.Hour)
	s.take(3)
	s.at(10_000)
	s.take(2)
	s.giveBack(0, 3)
	s.wantRemaining(8)
	s.wantEntries("0 3 3", "10000 2 5")
}

func TestStreamTTL(t *testing.T) {
	for _, c := range []struct{ length, keep, want time.Duration }{
		{10 * time.Second, 0, 10 * time.Second},
		{10 * time.Second, 3 * time.Second, 10 * time.Second},
		{10 * time.Second, time.Hour, time.Hour},
		{40 * time.Millisecond, time.Minute, time.Minute},
	} {
		s := newStreamTest(t, c.keep)
		s.one.Policies[0].Window = c.length
		check := func(what string) {
			t.Helper()
			ahead := time.Duration(serverTime(t, s.redis)-s.clock.Now()) * time.Millisecond
			left := s.redis.PTTL(t.Context(), s.key).Val() + ahead
			if most := c.want + min(c.want, 100*time.Millisecond); left > most || left < c.want-2*time.Second {
				t.Errorf("window %s, keep %s, after %s: TTL %s, want %s to %s", c.length, c.keep, what, left, c.want, most)
			}
		}
		s.take(1)
		check("a request")
		s.at(2)
		s.chargeMore(2)
		check("a further charge")
		s.giveBack(0, 1)
		check("the first was given back")
		s.at(1)
		s.take(100)
		check("a denial with the clock back")
		if n := len(s.entries()); n != 1 {
			t.Errorf("%d entries, want 1", n)
		}
	}
}

// TestStreamSettles gives back in every position.
func TestStreamSettles(t *testing.T) {
	for _, c := range []struct {
		name      string
		at, units int64
		fields    []string
		want      []string
	}{
		{"the first", 0, 3, nil, []string{"1 1 1 b", "1 2 3 c", "1 1 4 b", "2 1 5 d", "2 1 6 e"}},
		{"a part of the first", 0, 2, nil, []string{"0 1 1 a", "1 1 2 b", "1 2 4 c", "1 1 5 b", "2 1 6 d", "2 1 7 e"}},
		{"the latest of its time", 1, 1, nil, []string{"0 3 3 a", "1 1 4 b", "1 2 6 c", "2 1 7 d", "2 1 8 e"}},
		{"its own", 1, 1, []string{"c", ""}, []string{"0 3 3 a", "1 1 4 b", "1 1 5 c", "1 1 6 b", "2 1 7 d", "2 1 8 e"}},
		{"its own, the latest", 1, 1, []string{"b", ""}, []string{"0 3 3 a", "1 1 4 b", "1 2 6 c", "2 1 7 d", "2 1 8 e"}},
		{"more than its own", 1, 3, []string{"c", ""}, []string{"0 3 3 a", "1 1 4 b", "2 1 5 d", "2 1 6 e"}},
		{"more than there was", 1, 100, nil, []string{"0 3 3 a", "2 1 4 d", "2 1 5 e"}},
		{"the newest", 2, 1, nil, []string{"0 3 3 a", "1 1 4 b", "1 2 6 c", "1 1 7 b", "2 1 8 d"}},
		{"before the newest", 2, 1, []string{"d", ""}, []string{"0 3 3 a", "1 1 4 b", "1 2 6 c", "1 1 7 b", "2 1 8 e"}},
		{"before the newest, and the newest", 2, 2, []string{"d", ""}, []string{"0 3 3 a", "1 1 4 b", "1 2 6 c", "1 1 7 b"}},
		{"all of the newest time", 2, 2, nil, []string{"0 3 3 a", "1 1 4 b", "1 2 6 c", "1 1 7 b"}},
		{"nothing", 3, 1, nil, []string{"0 3 3 a", "1 1 4 b", "1 2 6 c", "1 1 7 b", "2 1 8 d", "2 1 9 e"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStreamTest(t, 0)
			for _, e := range []struct {
				at, cost int64
				field    string
			}{{0, 3, "a"}, {1, 1, "b"}, {1, 2, "c"}, {1, 1, "b"}, {2, 1, "d"}, {2, 1, "e"}} {
				s.at(e.at)
				s.take(e.cost, e.field, "")
			}
			s.giveBack(c.at, c.units, c.fields...)
			want, total := c.want, int64(0)
			for i, w := range want {
				want[i] = w + " " // the empty value
				total, _ = strconv.ParseInt(strings.Fields(w)[2], 10, 64)
			}
			s.wantEntries(want...)
			s.wantRemaining(10 - total)
			// What comes next fits in, at the same time and if the clock steps back.
			s.take(1, "f", "")
			s.wantEntries(append(want, fmt.Sprintf("2 1 %d f ", total+1))...)
			s.giveBack(2, 1, "f", "")
			s.at(1)
			if d := s.take(10 - total); !d.Allowed || d.Remaining != 0 {
				t.Errorf("Take = %+v, want 0 remaining", d)
			}
			for _, e := range s.entries() {
				if e.ms > 1 {
					t.Errorf("entry %+v lies in the future", e)
				}
			}
		})
	}
}

// TestStreamFindsNewestUnit gives back the newest units of many, the oldest of them first: what
// is the newest then lies far before the end, and decisions are those of the Go twin.
func TestStreamFindsNewestUnit(t *testing.T) {
	for _, gone := range []int{1, 2, 3, 70, 199, 298, 299} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			clock := windowtest.NewClock()
			s := newStore(t, redis.Options{Now: clock.Now})
			c := charge("zone", "key", 1_000, 10*time.Second)
			c.Algorithm = window.Stream{}
			kept := windowtest.Kept{Algorithm: c.Algorithm}
			var spent []int64
			for range 300 {
				clock.Add(7)
				spent = append(spent, take(t, s, c)[0].At)
				kept.Decide(clock.Now(), c, true)
			}
			for _, at := range spent[len(spent)-gone:] {
				if err := s.GiveBack(t.Context(), c, at, 1); err != nil {
					t.Fatal(err)
				}
				kept.GiveBack(clock.Now(), c, at, 1)
			}
			want := kept.Decide(clock.Now(), c, false)
			want[0].At = clock.Now()
			got, err := s.Peek(t.Context(), []window.Charge{c})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("Peek = %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestStreamGivesAllBack(t *testing.T) {
	s := newStreamTest(t, 0)
	s.take(4, "user", "anna")
	s.giveBack(0, 4)
	if n := s.redis.Exists(t.Context(), s.key).Val(); n != 0 {
		t.Error("an empty stream is left")
	}
	s.chargeMore(2, "user", "bert")
	s.wantEntries("0 2 2 user bert")
}

// TestStreamLargeTotals spends 2^53 again and again: running totals stay exact.
func TestStreamLargeTotals(t *testing.T) {
	for _, keep := range []time.Duration{10 * time.Second, time.Hour} { // real time, too, for the key
		s := newStreamTest(t, keep)
		s.one.Policies = []window.Policy{{Limit: window.MaxProduct / 2, Window: 2 * time.Millisecond}}
		plain := windowtest.Kept{Algorithm: window.Zset{}}
		r := rand.New(rand.NewPCG(2, 2))
		allowed := 0
		for n := range 300 {
			s.clock.Add(r.Int64N(2))
			c := s.one
			c.Cost = window.MaxProduct/4 + r.Int64N(3) - 1
			got, want := s.take(c.Cost), plain.Decide(s.clock.Now(), c, true)[0]
			if got != want {
				t.Fatalf("keep %s, request %d: %+v, want %+v", keep, n, got, want)
			}
			if got.Allowed {
				allowed++
			}
		}
		if allowed < 100 {
			t.Errorf("keep %s: only %d admitted", keep, allowed)
		}
		for _, e := range s.entries() {
			if total, err := strconv.ParseInt(e.words[3], 10, 64); err != nil || total < 0 || total > window.MaxProduct {
				t.Errorf("keep %s: total %s, want 2^53 at most", keep, e.words[3])
			}
		}
	}
}

// TestStreamMemory holds what docs/stream.md says of entries without fields.
func TestStreamMemory(t *testing.T) {
	s := newStreamTest(t, 0)
	s.one.Policies[0] = window.Policy{Limit: 1000, Window: time.Hour}
	for range 1000 {
		s.clock.Add(3_000)
		s.take(1)
	}
	if bytes := s.redis.MemoryUsage(t.Context(), s.key, 0).Val(); bytes > 38_000 {
		t.Errorf("%d bytes for 1000 entries, want 38 each at most", bytes)
	}
}

// TestStreamOutOfMemory gives back while the server has no memory left: nothing
// is lost on the way.
func TestStreamOutOfMemory(t *testing.T) {
	own := redistest.Start(t)
	s := newStreamTest(t, 0)
	s.redis, s.store = own.Client(t), newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: s.clock.Now, Prefix: "oom"})
	s.key = "oom:2-stream:zone:key"
	for n := range int64(4) {
		s.at(n)
		s.take(1, "n", fmt.Sprint(n))
	}
	if err := s.redis.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Take(t.Context(), []window.Charge{s.one}); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Take = %v, want OOM", err)
	}
	s.giveBack(1, 1)
	s.giveBack(3, 1)
	s.wantEntries("0 1 1 n 0", "2 1 2 n 2")
}
