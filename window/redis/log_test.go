package redis_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// usage returns the exact size of a key.
func usage(t *testing.T, c *goredis.Client, key string) int64 {
	t.Helper()
	n, err := c.MemoryUsage(t.Context(), key, 0).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// isRing reports whether a log has more than one chunk.
func isRing(log string) bool { return log[0] == 255 }

// chunks returns those of a log, oldest first.
func chunks(t *testing.T, c *goredis.Client, key string) (all []string) {
	t.Helper()
	log, err := c.Get(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	if !isRing(log) {
		return []string{log}
	}
	const head, page = 36, 256
	number := func(at int) int { return int(binary.BigEndian.Uint32([]byte(log[at:]))) }
	first, pages, slots := number(1), number(5), number(9)
	if len(log) != head+255+slots*page {
		t.Fatalf("a log of %d bytes with %d slots", len(log), slots)
	}
	for i := range pages {
		at := head + 255 + (first+i)%slots*page
		all = append(all, log[at+1:][:log[at]])
	}
	return append(all, log[head:][:log[head-1]])
}

// TestLogBytesOfCosts holds what is kept of a cost against that of a unit.
func TestLogBytesOfCosts(t *testing.T) {
	const n, gap = 1_000, 10
	c := server.Client(t)
	bytes := func(cost int64) (all int64) {
		clock := windowtest.NewClock()
		s := newStore(t, redis.Options{Prefix: fmt.Sprint(cost), Now: func() int64 { clock.Add(gap); return clock.Now() }})
		for range n {
			one := charge("zone", "key", 2*n*cost, 2*n*gap*time.Millisecond)
			one.Algorithm, one.Cost = window.Log{}, cost
			take(t, s, one)
		}
		for _, chunk := range chunks(t, c, fmt.Sprint(cost)+":2-log:zone:key") {
			all += int64(len(chunk))
		}
		return all
	}
	unit := bytes(1)
	for cost, most := range map[int64]int64{2: 1, 127: 1, 16_383: 2, 2_000_000: 3, 100_000_000: 4} {
		if more := bytes(cost) - unit; more > n*most*9/8 || more < n*most*9/10 {
			t.Errorf("%d times %d: %d B more than for a unit, want about %d each", n, cost, more, most)
		}
	}
}

// TestLogBytes holds the size of a log against that of a list of integers and of
// a sorted set, for units that come every ten milliseconds and for units that are
// spread over a minute, an hour or a day.
func TestLogBytes(t *testing.T) {
	c := server.Client(t)
	most := map[int64]int64{100: 6*100 + 130, 1_000: 4_300, 10_000: 47_000}
	for _, spread := range []int64{0, 60_000, 3_600_000, 24 * 3_600_000} {
		for _, n := range []int64{1, 2, 3, 5, 10, 30, 100, 1_000, 10_000} {
			gap := int64(10)
			if spread > 0 {
				gap = spread / n
			}
			clock := windowtest.NewClock()
			prefix := fmt.Sprintf("%d-%d", n, gap)
			s := newStore(t, redis.Options{Prefix: prefix, Now: func() int64 { clock.Add(gap); return clock.Now() }})
			for _, algo := range []window.Algorithm{window.Log{}, window.Zset{}} {
				batch := make([][]window.Charge, n)
				for i := range batch {
					one := charge("zone", "key", 2*n, time.Hour+time.Duration(n*gap)*time.Millisecond)
					one.Algorithm = algo
					batch[i] = []window.Charge{one}
				}
				for _, r := range s.TakeEach(t.Context(), batch) {
					if r.Err != nil || !window.Allowed(r.Decisions) {
						t.Fatalf("TakeEach: %+v", r)
					}
				}
			}
			// Lists of the same times, since the first of them and since 1970.
			if _, err := c.Pipelined(t.Context(), func(p goredis.Pipeliner) error {
				for i := range n {
					p.RPush(t.Context(), prefix+":lst:zone:key", i*gap)
					p.RPush(t.Context(), prefix+":abs:zone:key", windowtest.Start+i*gap)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			log, zset := usage(t, c, prefix+":2-log:zone:key"), usage(t, c, prefix+":2-zset:zone:key")
			list, absolute := usage(t, c, prefix+":lst:zone:key"), usage(t, c, prefix+":abs:zone:key")
			t.Logf("%5d units, one every %5d ms: log %6d B, list %6d B, list of times %6d B, zset %7d B", n, gap, log, list, absolute, zset)
			if bar := most[n]; bar > 0 && log > bar {
				t.Errorf("%d units, one every %d ms: %d B, want %d at most", n, gap, log, bar)
			}
			if log > list || log > zset {
				t.Errorf("%d units, one every %d ms: %d B, want no more than a list's %d and zset's %d", n, gap, log, list, zset)
			}
		}
	}
}

// TestLogForgets holds the number of chunks over a long time.
func TestLogForgets(t *testing.T) {
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Prefix: "forgets", Now: clock.Now}), server.Client(t)
	one := charge("zone", "key", 1_000, 100*time.Second)
	one.Algorithm = window.Log{}
	chunks := func() int { return len(chunks(t, c, "forgets:2-log:zone:key")) }
	var most int
	for range 5_000 {
		clock.Add(100)
		take(t, s, one)
		most = max(most, chunks())
	}
	if most > 1_000/110+2 {
		t.Errorf("%d chunks at most, want %d", most, 1_000/110+2)
	}
	if bytes := c.StrLen(t.Context(), "forgets:2-log:zone:key").Val(); bytes > 5_000 {
		t.Errorf("%d bytes after five windows, want 5,000 at most", bytes)
	}
	clock.Add(99_000)
	take(t, s, one)
	if n := chunks(); n > 2 {
		t.Errorf("%d chunks once most units have left, want 2 at most", n)
	}
	clock.Add(100_000)
	take(t, s, one)
	if n := chunks(); n != 1 {
		t.Errorf("%d chunks once all others have left, want 1", n)
	}
}

// logWalk makes the same calls in memory and in Redis.
type logWalk struct {
	*testing.T
	*rand.Rand
	clock  *windowtest.Clock
	stores [2]window.Store
	step   int
}

func newLogWalk(t *testing.T, seed uint64) *logWalk {
	clock := windowtest.NewClock()
	m := memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})
	t.Cleanup(func() { _ = m.Close() })
	return &logWalk{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), clock: clock, stores: [2]window.Store{m, open(t, clock)}}
}

func (w *logWalk) agree(what string, c window.Charge, ask func(window.Store) ([]window.Decision, error)) []window.Decision {
	w.Helper()
	w.step++
	want, err := ask(w.stores[0])
	if err != nil {
		w.Fatal(err)
	}
	got, err := ask(w.stores[1])
	if err != nil || !slices.Equal(got, want) {
		w.Fatalf("step %d at %d: %s(%+v) = %+v, %v, want %+v", w.step, w.clock.Now(), what, c, got, err, want)
	}
	return got
}

func (w *logWalk) take(c window.Charge) []window.Decision {
	w.Helper()
	return w.agree("Take", c, func(s window.Store) ([]window.Decision, error) { return s.Take(w.Context(), []window.Charge{c}) })
}

func (w *logWalk) peek(c window.Charge) {
	w.Helper()
	w.agree("Peek", c, func(s window.Store) ([]window.Decision, error) { return s.Peek(w.Context(), []window.Charge{c}) })
}

func (w *logWalk) giveBack(c window.Charge, at, units int64) {
	w.Helper()
	w.agree(fmt.Sprint("GiveBack ", at, " ", units, " "), c, func(s window.Store) ([]window.Decision, error) {
		return nil, s.GiveBack(w.Context(), c, at, units)
	})
}

func (w *logWalk) chargeMore(c window.Charge, units int64) {
	w.Helper()
	w.agree(fmt.Sprint("ChargeMore ", units, " "), c, func(s window.Store) ([]window.Decision, error) {
		return nil, s.ChargeMore(w.Context(), c, units)
	})
}

// TestLogLong looks at many windows of a log of hundreds of chunks.
func TestLogLong(t *testing.T) {
	w := newLogWalk(t, 1)
	c := charge("zone", "key", 1_000_000, time.Hour)
	c.Algorithm = window.Log{}
	var spent []int64
	for range 3_000 {
		w.clock.Add(w.Int64N(1 + w.Int64N(1_000)))
		c.Cost = 1 + w.Int64N(3)/2*w.Int64N(300)
		spent = append(spent, w.take(c)[0].At)
	}
	for range 600 {
		w.clock.Add(w.Int64N(100))
		if w.IntN(100) == 0 {
			w.clock.Add(-w.Int64N(20_000))
		}
		c.Policies = []window.Policy{{Limit: 1_000_000, Window: time.Hour}}
		for range 1 + w.IntN(3) {
			length := time.Duration(1+w.Int64N(1+w.Int64N(1_000_000))) * time.Millisecond
			c.Policies = append(c.Policies, window.Policy{Limit: w.Int64N(60_000), Window: length})
		}
		c.Cost = 1 + w.Int64N(1+w.Int64N(10_000))
		w.peek(c)
		w.take(c)
		if w.IntN(10) == 0 {
			w.giveBack(c, spent[w.IntN(len(spent))], 1+w.Int64N(300))
		}
	}
}

// TestLogHugeUnits counts units up to the largest running total, and holds that counting
// starts afresh before that is exceeded.
func TestLogHugeUnits(t *testing.T) {
	for seed := range uint64(20) {
		w := newLogWalk(t, seed)
		length := 10_000 + w.Int64N(10_000)
		c := charge("zone", "key", window.MaxProduct/length, time.Duration(length)*time.Millisecond)
		c.Algorithm = window.Log{}
		at := w.clock.Now()
		for range 300 {
			w.clock.Add(w.Int64N(1 + w.Int64N(length/4)))
			c.Cost = 1 + w.Int64N(c.Policies[0].Limit)>>w.IntN(20)
			if ds := w.take(c); ds[0].Allowed {
				at = ds[0].At
			}
			switch w.IntN(10) {
			case 0, 1:
				w.giveBack(c, at, 1+w.Int64N(c.Policies[0].Limit))
			case 2, 3:
				at = w.clock.Now()
				w.chargeMore(c, 1+w.Int64N(window.MaxProduct)>>w.IntN(10))
				if w.IntN(2) == 0 {
					w.giveBack(c, at, window.MaxProduct)
				}
			case 4:
				w.clock.Add(-w.Int64N(length / 2))
			}
		}
	}
}

// TestLogRebase begins to count anew when some records or whole chunks have left,
// and looks at what is still there.
func TestLogRebase(t *testing.T) {
	w := newLogWalk(t, 1)
	for late := range int64(24) {
		c := charge("rebase", fmt.Sprint(late), window.MaxProduct/1_000, time.Second)
		c.Algorithm = window.Log{}
		start := w.clock.Now()
		for range 20 {
			w.chargeMore(c, 1<<32)
			w.clock.Add(1)
		}
		at := start + 999 + late
		w.clock.Set(at)
		w.chargeMore(c, window.MaxProduct)
		w.giveBack(c, at, window.MaxProduct)
		w.peek(c)
		w.clock.Add(1)
		w.take(c)
		c.Policies = []window.Policy{{Limit: window.MaxProduct / 60_000, Window: time.Minute}}
		w.peek(c)
	}
}

// TestLogWindows changes the window all the time: what a shorter one has forgotten, and
// nothing else, is missing from a longer one.
func TestLogWindows(t *testing.T) {
	for seed := range uint64(4) {
		w := newLogWalk(t, seed)
		lengths := []time.Duration{100 * time.Millisecond, time.Second, 4 * time.Second}
		gap := int64(1) << w.IntN(8)
		for range 100 {
			c := charge("zone", fmt.Sprint(w.IntN(2)), 10_000, lengths[w.IntN(3)])
			c.Algorithm = window.Log{}
			for range 1 + w.IntN(80) {
				w.clock.Add(w.Int64N(1 + gap))
				c.Cost = 1 + w.Int64N(20)/19*w.Int64N(200)
				w.take(c)
			}
			c.Policies = append(c.Policies, window.Policy{Limit: 20_000, Window: time.Hour})
			w.peek(c)
			if w.IntN(8) == 0 {
				w.take(c)
			}
		}
	}
}

// TestLogEdge has the edge of the window at every record of the first two chunks, and at
// the next ones, when the chunk has been written anew.
func TestLogEdge(t *testing.T) {
	const n = 200
	w := newLogWalk(t, 1)
	for gone := range int64(n) {
		c := charge("zone", fmt.Sprint(gone), 1_000, time.Second)
		c.Algorithm = window.Log{}
		for range n {
			w.clock.Add(1)
			w.take(c)
		}
		oldest := w.clock.Now() - n + gone + 1
		w.clock.Add(time.Second.Milliseconds() - n + gone)
		for range 3 {
			w.take(c)
			w.giveBack(c, oldest, 1)
			w.peek(c)
			w.clock.Add(1)
		}
	}
}

// TestLogWide has more time and more units between two records than a chunk can hold.
func TestLogWide(t *testing.T) {
	w := newLogWalk(t, 1)
	zone := func(key int64) window.Charge {
		c := charge("zone", fmt.Sprint(key), 200_000, 365*24*time.Hour)
		c.Algorithm = window.Log{}
		return c
	}
	all := func(c window.Charge) {
		shorter := window.Policy{Window: time.Duration(1+w.Int64N(1<<33)) * time.Millisecond}
		shorter.Limit = window.MaxProduct / shorter.Window.Milliseconds()
		c.Policies = append(slices.Clone(c.Policies), shorter)
		w.peek(c)
	}
	for range 400 {
		c := zone(0)
		w.clock.Add(w.Int64N(1 + int64(1)<<w.IntN(34)))
		if w.IntN(10) == 0 {
			w.chargeMore(c, 1+w.Int64N(1<<33))
		}
		w.take(c)
		all(c)
	}
	// Little by little, across the edge.
	for before := range int64(6) {
		c := zone(1 + before)
		w.take(c)
		w.clock.Add(1<<32 - 50*before)
		for range 6 {
			w.take(c)
			w.clock.Add(50)
			all(c)
		}
		c = zone(10 + before)
		c.Policies[0] = window.Policy{Limit: window.MaxProduct / 600_000, Window: 10 * time.Minute}
		w.chargeMore(c, 1<<32-2*before)
		for range 6 {
			w.clock.Add(1)
			w.take(c)
			w.take(c)
			all(c)
		}
	}
}

// TestLogShrinks forgets most pages of a ring, so that it is written anew with less room in the middle of what
// it had, and goes on.
func TestLogShrinks(t *testing.T) {
	for n := 1_900; n <= 2_100; n += 50 { // a hundred or so in a page: slots behind the last one are free, or not
		w := newLogWalk(t, 1)
		c := charge("zone", "key", 100_000, time.Hour)
		c.Algorithm = window.Log{}
		for range n {
			w.clock.Add(1_000)
			w.take(c)
		}
		w.clock.Add(3_300_000) // three pages are left
		for range 500 {
			w.clock.Add(1_000)
			w.take(c)
			c.Policies = append(c.Policies[:1:1], window.Policy{Limit: 100_000, Window: time.Duration(1+w.IntN(3_600)) * time.Second})
			w.peek(c)
			c.Policies = c.Policies[:1]
		}
	}
}

// TestLogCrowdedMilliseconds has numbers of units in one millisecond that take one byte
// or more, each followed by single units, and compares with memory.
func TestLogCrowdedMilliseconds(t *testing.T) {
	clock := windowtest.NewClock()
	local := memory.New(memory.Options{Now: clock.Now, SweepInterval: -1})
	defer func() { _ = local.Close() }()
	s := newStore(t, redis.Options{Now: clock.Now, Prefix: "crowded"})
	for _, units := range []int64{1, 2, 126, 127, 128, 129, 200, 254, 255, 256, 300, 16_382, 16_383, 20_000} {
		one := charge("zone", fmt.Sprint(units), 100_000, 100*time.Millisecond)
		one.Algorithm = window.Log{}
		for step, cost := range []int64{units, 1, units, 1, 1, units - 1, 1, 1, units, 1} {
			one.Cost = cost
			for range 2 {
				clock.Add(int64(step) * 7)
				want, err := local.Take(t.Context(), []window.Charge{one})
				if err != nil {
					t.Fatal(err)
				}
				if got := take(t, s, one); got[0] != want[0] {
					t.Fatalf("%d units, step %d: %+v, memory says %+v", units, step, got[0], want[0])
				}
				one.Cost = 1
			}
		}
	}
}

// TestLogCrowdedChunks has such numbers all over some chunks of several, which leave
// again, and compares with memory.
func TestLogCrowdedChunks(t *testing.T) {
	for seed := range uint64(4) {
		w := newLogWalk(t, seed)
		one := charge("zone", "key", 1_000_000, 3*time.Second)
		one.Algorithm = window.Log{}
		for step := range 3_000 {
			if step/200%2 == 0 {
				crowd := one
				crowd.Cost = 200 + w.Int64N(400)
				w.take(crowd)
			}
			w.take(one)
			w.clock.Add(w.Int64N(12))
			if w.IntN(300) == 0 {
				w.clock.Add(2_900 + w.Int64N(100))
			}
		}
	}
}

// TestLogBorder has a log of one chunk become one of several, and back, again and again.
func TestLogBorder(t *testing.T) {
	c := server.Client(t)
	for seed := range uint64(6) {
		w := newLogWalk(t, seed)
		prefix := fmt.Sprint("border", seed)
		w.stores[1] = redis.AskAlways(newStore(t, redis.Options{Prefix: prefix, Now: w.clock.Now}))
		one := charge("zone", "key", 1_000+w.Int64N(1_000), 4*time.Second)
		one.Algorithm = window.Log{}
		kinds, last, gap := map[string]int{}, "", int64(1)
		var spent []int64
		for range 2_500 {
			if w.IntN(250) == 0 {
				gap = 2 << w.IntN(7)
				w.clock.Add(w.Int64N(5_000))
			}
			w.clock.Add(w.Int64N(gap))
			ask := one
			switch w.IntN(40) {
			case 0, 1:
				ask.Cost = 1 + w.Int64N(300)>>w.IntN(9)
			case 2:
				ask.Policies = append(slices.Clone(ask.Policies), window.Policy{Limit: 1 + w.Int64N(200), Window: time.Duration(1+w.Int64N(3_999)) * time.Millisecond})
			case 3:
				if len(spent) > 0 {
					w.giveBack(one, spent[len(spent)-1-w.IntN(min(len(spent), 300))], 1+w.Int64N(3))
				}
			case 4:
				w.peek(ask)
			case 5:
				if w.IntN(20) == 0 {
					w.clock.Add(-w.Int64N(2_000))
					for i := range spent { // the next call moves them
						spent[i] = min(spent[i], w.clock.Now())
					}
				}
			}
			if ds := w.take(ask); window.Allowed(ds) {
				spent = append(spent, ds[0].At)
			}
			kind := "chunk"
			if isRing(c.Get(t.Context(), prefix+":2-log:zone:key").Val()) {
				kind = "ring"
			}
			if kind != last {
				kinds[kind]++
				last = kind
			}
			if until := c.PExpireTime(t.Context(), prefix+":2-log:zone:key").Val().Milliseconds(); until < spent[len(spent)-1]+4_000 {
				t.Fatalf("seed %d: at %d, a %s that expires at %d, with what was spent at %d", seed, w.clock.Now(), kind, until, spent[len(spent)-1])
			}
		}
		t.Logf("seed %d: %v", seed, kinds)
		if kinds["ring"] < 2 || kinds["chunk"] < 2 {
			t.Errorf("seed %d: %v, want both more than once", seed, kinds)
		}
	}
}

// TestLogText has text in the place of a log, which is read as one string with others.
func TestLogText(t *testing.T) {
	s, c := newStore(t, redis.Options{Prefix: "text"}), server.Client(t)
	c.Set(t.Context(), "text:2-log:zone:key", "a text which is longer than a chunk has to be", time.Minute)
	one, other := charge("zone", "key", 10, time.Hour), charge("zone", "other", 10, time.Hour)
	one.Algorithm, other.Algorithm = window.Log{}, window.Log{}
	for one.Cost = range int64(3) {
		results := s.TakeBatch(t.Context(), [][]window.Charge{{one}, {other}})
		if err := results[0].Err; !errors.Is(err, window.ErrForeign) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("cost %d: %v, want ErrForeign and WRONGTYPE", one.Cost, err)
		}
		if results[1].Err != nil {
			t.Errorf("cost %d: the other key: %v", one.Cost, results[1].Err)
		}
	}
}

// TestLogWithoutMemory refuses each unit once for want of memory, the one that makes a
// ring of a chunk, too: nothing at all is changed.
func TestLogWithoutMemory(t *testing.T) {
	own, clock := redistest.Start(t), windowtest.NewClock()
	s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "full", Now: clock.Now}), own.Client(t)
	const key = "full:2-log:zone:key"
	for n := range int64(200) {
		one := charge("zone", "key", 1_000, time.Hour)
		one.Algorithm, one.Cost = window.Log{}, 1+n%2
		before := c.Dump(t.Context(), key).Val()
		clock.Add(1)
		c.ConfigSet(t.Context(), "maxmemory", "1")
		if _, err := s.Take(t.Context(), []window.Charge{one}); !errors.Is(err, window.ErrUnavailable) {
			t.Fatalf("unit %d: Take = %v, want ErrUnavailable", n, err)
		}
		c.ConfigSet(t.Context(), "maxmemory", "0")
		if c.Dump(t.Context(), key).Val() != before {
			t.Fatalf("unit %d: refused, and the log has changed", n)
		}
		take(t, s, one)
	}
	if !isRing(c.Get(t.Context(), key).Val()) {
		t.Error("one chunk in the end, want more")
	}
}
