package fallback_test

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// newGuard returns a guard whose store is not asked.
func newGuard(tb testing.TB) *fallback.Guard {
	r := newRemote()
	g := fallback.New(r, fallback.Options{})
	g.EnableLocal()
	tb.Cleanup(func() {
		_ = g.Close()
		_ = r.Close()
	})
	return g
}

// left is a decision at a time that left so much of 10.
func left(at, remaining int64, allowed bool) []window.Decision {
	return []window.Decision{{Allowed: allowed, Limit: 10, Remaining: remaining, ResetAfter: 100 * time.Millisecond, At: at}}
}

// TestKnownOrder notes decisions in the order in which they were heard of.
func TestKnownOrder(t *testing.T) {
	type step struct {
		asked, heard  int64
		at, remaining int64
		denied        bool
		want          int64 // known to be used, then
	}
	for name, steps := range map[string][]step{
		"one after the other":            {{1, 2, 1001, 4, false, 6}, {2, 3, 1002, 7, false, 3}, {3, 4, 1003, 10, false, 0}},
		"overtaken":                      {{1, 2, 1002, 4, false, 6}, {1, 3, 1001, 5, false, 6}, {2, 4, 1003, 5, false, 5}},
		"overtaken twice":                {{1, 2, 1003, 4, false, 6}, {1, 3, 1001, 6, false, 6}, {1, 4, 1002, 9, false, 6}},
		"overtaken with more":            {{1, 2, 1002, 6, false, 4}, {1, 3, 1001, 3, false, 7}},
		"of one millisecond":             {{1, 2, 1001, 4, false, 6}, {1, 2, 1001, 5, false, 6}, {1, 2, 1001, 3, false, 7}},
		"a denial makes nothing less":    {{1, 2, 1001, 2, false, 8}, {2, 3, 1002, 3, true, 8}, {3, 4, 1003, 0, true, 10}},
		"nothing left makes it not less": {{1, 2, 1001, 0, false, 10}, {2, 3, 1002, 0, false, 10}},
		"a clock that steps back a bit":  {{1, 2, 9001, 4, false, 6}, {3, 4, 8999, 8, false, 6}, {5, 6, 9002, 8, false, 2}},
		"a clock that steps back far":    {{1, 2, 90001, 4, false, 6}, {3, 4, 1, 8, false, 2}},
		"no clock":                       {{1, 2, 0, 4, false, 6}, {3, 4, 0, 8, false, 2}, {3, 5, 0, 6, false, 4}, {4, 6, 0, 9, false, 4}, {7, 8, 0, 9, false, 1}},
		"what is over":                   {{1, 2, 1001, 4, false, 6}, {103, 104, 1001, 8, true, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			g, c := newGuard(t), charge("zone", "key", 10, time.Second)
			for i, s := range steps {
				g.Note(s.asked, s.heard, []window.Charge{c}, left(s.at, s.remaining, !s.denied))
				if got := g.Known(s.heard, c); got != s.want {
					t.Errorf("step %d: %d are known to be used, want %d", i+1, got, s.want)
				}
			}
		})
	}
}

// TestKnownOfLease has a lease that is older than what a clock may step back: what it
// lets pass says nothing of what was used since.
func TestKnownOfLease(t *testing.T) {
	g, c := newGuard(t), charge("zone", "key", 10, time.Hour)
	g.Note(1, 2, []window.Charge{c}, left(90_001, 4, true))
	c.Lease = window.Lease{Units: 5, TTL: time.Minute}
	g.Note(3, 4, []window.Charge{c}, left(1, 8, true))
	if got := g.Known(4, c); got != 6 {
		t.Errorf("%d are known to be used, want 6", got)
	}
}

// TestKnownUntil forgets what does not count any more.
func TestKnownUntil(t *testing.T) {
	g, c := newGuard(t), charge("zone", "key", 10, time.Second)
	g.Note(1, 2, []window.Charge{c}, left(1001, 4, true))
	for now, want := range map[int64]int64{2: 6, 102: 6, 103: 0} {
		if got := g.Known(now, c); got != want {
			t.Errorf("at %d ms: %d are known to be used, want %d", now, got, want)
		}
	}
}

// TestKnownUntilTheLast keeps what is known for as long as any of it may count.
func TestKnownUntilTheLast(t *testing.T) {
	g, c := newGuard(t), charge("zone", "key", 10, time.Second)
	g.Note(1, 2, []window.Charge{c}, left(1002, 4, true))
	earlier := left(1001, 5, true)
	earlier[0].ResetAfter = 10 * time.Millisecond
	g.Note(1, 3, []window.Charge{c}, earlier)
	if got := g.Known(102, c); got != 6 {
		t.Errorf("%d are known to be used, want 6", got)
	}
}

// TestKnownOfLoweredLimit does not take a limit that is used up for all that was used.
func TestKnownOfLoweredLimit(t *testing.T) {
	g, c := newGuard(t), charge("zone", "key", 100, time.Hour)
	for at, limit := range []int64{100, 10} {
		g.Note(1, 2, []window.Charge{c}, []window.Decision{
			{Allowed: true, Limit: limit, Remaining: limit / 100 * 50, ResetAfter: time.Hour, At: int64(1 + at)},
		})
		if got := g.Known(3, c); got != 50 {
			t.Errorf("limit %d: %d are known to be used, want 50", limit, got)
		}
	}
}

// TestKnownLimits keeps the limit with the most units, of each counter of a request.
func TestKnownLimits(t *testing.T) {
	g := newGuard(t)
	one, two := charge("one", "key", 10, time.Second), charge("two", "key", 10, time.Second)
	one.Policies = []window.Policy{{Limit: 10, Window: time.Second}, {Limit: 100, Window: time.Minute}, {Limit: 20, Window: time.Second}}
	g.Note(1, 2, []window.Charge{one, two}, []window.Decision{
		{Allowed: true, Limit: 10, Remaining: 7, ResetAfter: time.Second, At: 1},
		{Allowed: true, Limit: 100, Remaining: 60, ResetAfter: time.Minute, At: 1},
		{Allowed: true, Limit: 20, Remaining: 17, ResetAfter: time.Second, At: 1},
		{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: time.Second, At: 1},
	})
	gcra := one
	gcra.Algorithm = window.GCRA{}
	other := one
	other.Zone, other.Key = "key", "one"
	for i, c := range []window.Charge{one, two, gcra, other} {
		if got, want := g.Known(30_000, c), []int64{40, 0, 0, 0}[i]; got != want {
			t.Errorf("charge %d: %d are known to be used after 30 s, want %d", i, got, want)
		}
		if got, want := g.Known(500, c), []int64{40, 1, 0, 0}[i]; got != want {
			t.Errorf("charge %d: %d are known to be used after 0.5 s, want %d", i, got, want)
		}
	}
}

// TestKnownIsBounded floods the table with keys that have used little: those that deny
// stay, and nothing grows.
func TestKnownIsBounded(t *testing.T) {
	g := newGuard(t)
	denied := make([]window.Charge, 100)
	for i := range denied {
		denied[i] = charge("abusers", strconv.Itoa(i), 10, time.Hour)
		g.Note(1, 2, denied[i:i+1], left(1001, 0, false))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := charge("flood", "", 10, time.Hour)
	for i := range 3 * fallback.MostKeys {
		c.Key = strconv.Itoa(i)
		g.Note(1, 2, []window.Charge{c}, left(1001, 9, true))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := g.Keys(); n > fallback.MostKeys || n < fallback.MostKeys*9/10 {
		t.Errorf("%d keys are known, want close to %d", n, fallback.MostKeys)
	}
	for i := range denied {
		if g.Known(3, denied[i]) != 10 {
			t.Errorf("key %d was denied, and that is forgotten", i)
		}
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 100_000 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	runtime.KeepAlive(g)
}

// TestKnownOfOtherZones floods the table with keys of one zone that are used up after one
// request. What is known of other zones' keys stays.
func TestKnownOfOtherZones(t *testing.T) {
	for _, used := range []int64{1, 9, 10} {
		g := newGuard(t)
		quota := make([]window.Charge, 100)
		for i := range quota {
			quota[i] = charge("quota", strconv.Itoa(i), 10, time.Hour)
			g.Note(1, 2, quota[i:i+1], left(1001, 10-used, used < 10))
		}
		c := charge("flood", "", 1, time.Hour)
		spent := []window.Decision{{Allowed: true, Limit: 1, ResetAfter: time.Hour, At: 1001}}
		for i := range 216_000 {
			c.Key = strconv.Itoa(i)
			g.Note(1, 2, []window.Charge{c}, spent)
		}
		forgotten := 0
		for i := range quota {
			if g.Known(3, quota[i]) != used {
				forgotten++
			}
		}
		if forgotten > 0 {
			t.Errorf("%d of 10 used: %d of %d keys are forgotten", used, forgotten, len(quota))
		}
		if n := g.Keys(); n < fallback.MostKeys*9/10 {
			t.Errorf("%d keys are known, want close to %d", n, fallback.MostKeys)
		}
	}
}

// TestKnownGivesWay lets a zone come late to a table that another one has filled.
func TestKnownGivesWay(t *testing.T) {
	g := newGuard(t)
	for _, zone := range []string{"first", "late"} {
		c := charge(zone, "", 10, time.Hour)
		for i := range 216_000 {
			c.Key = strconv.Itoa(i)
			g.Note(1, 2, []window.Charge{c}, left(1001, 0, false))
		}
	}
	kept, c := map[string]int{}, charge("", "", 10, time.Hour)
	for _, c.Zone = range []string{"first", "late"} {
		for i := range 216_000 {
			if c.Key = strconv.Itoa(i); g.Known(3, c) > 0 {
				kept[c.Zone]++
			}
		}
		if n := kept[c.Zone]; n < fallback.MostKeys*45/100 {
			t.Errorf("zone %s: %d keys are known, want half of %d", c.Zone, n, fallback.MostKeys)
		}
	}
}

// TestKnownUnits has keys of one zone of which all are used up: those with more units stay.
func TestKnownUnits(t *testing.T) {
	g, large := newGuard(t), charge("zone", "large", 100, time.Hour)
	g.Note(1, 2, []window.Charge{large}, []window.Decision{{Limit: 100, ResetAfter: time.Hour, At: 1001}})
	c := charge("zone", "", 1, time.Hour)
	for i := range 216_000 {
		c.Key = strconv.Itoa(i)
		g.Note(1, 2, []window.Charge{c}, []window.Decision{{Allowed: true, Limit: 1, ResetAfter: time.Hour, At: 1001}})
	}
	if got := g.Known(3, large); got != 100 {
		t.Errorf("%d are known to be used, want 100", got)
	}
}

// TestNoteAllocates nothing.
func TestNoteAllocates(t *testing.T) {
	g, charges := newGuard(t), []window.Charge{charge("zone", "192.0.2.1", 10, time.Hour)}
	ds := left(1001, 5, true)
	if n := testing.AllocsPerRun(1000, func() { g.Note(1, 2, charges, ds) }); n != 0 {
		t.Errorf("noting a decision allocates %v times", n)
	}
}

// BenchmarkNote is what a decision of the store costs more than without a fallback.
func BenchmarkNote(b *testing.B) {
	g, keys := newGuard(b), make([]string, 100_000)
	for i := range keys {
		keys[i] = "192.0.2." + strconv.Itoa(i)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		charges, ds := []window.Charge{charge("zone", "", 10, time.Hour)}, left(1001, 5, true)
		for i := int64(0); pb.Next(); i++ {
			charges[0].Key, ds[0].At = keys[i%int64(len(keys))], i
			g.Note(i, i+1, charges, ds)
		}
	})
}
