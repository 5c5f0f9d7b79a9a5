package gate

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// door is a gate for requests of one unit a counter, with a clock that is set.
type door struct {
	*testing.T
	*Gate
	now time.Duration
}

func newDoor(t *testing.T, most int) *door { return &door{T: t, Gate: New(most)} }

func ones(n int) []window.Charge {
	return slices.Repeat([]window.Charge{windowtest.Charge("zone", "key", 10, time.Hour)}, n)
}

// admitted lets a request in that has to be let in, and returns its suspect.
func (d *door) admitted(what string, hashes ...uint64) int {
	d.Helper()
	suspect, _, wait, busy := d.Enter(d.now, ones(len(hashes)), hashes, false)
	if wait != nil || busy {
		d.Fatalf("%s: waits, or is turned away (%v); want it let in", what, busy)
	}
	return suspect
}

// waits makes a request wait.
func (d *door) waits(what string, hashes ...uint64) waiter {
	d.Helper()
	_, at, wait, _ := d.Enter(d.now, ones(len(hashes)), hashes, false)
	if wait == nil {
		d.Fatalf("%s: does not wait", what)
	}
	return waiter{at, wait}
}

type waiter struct {
	at   *CounterState
	wait chan struct{}
}

// want holds which of the waiters may try again.
func (d *door) want(what string, want string, all ...waiter) {
	d.Helper()
	got := ""
	for _, w := range all {
		select {
		case <-w.wait:
			got += "+"
		default:
			got += "-"
		}
	}
	if got != want {
		d.Errorf("%s: of the waiters %s may try again, want %s", what, got, want)
	}
}

// load holds what is in flight, and how many wait.
func (d *door) load(what string, inFlight int64, waiting int) {
	d.Helper()
	if n, w := d.Load(); n != inFlight || w != waiting {
		d.Errorf("%s: %d units in flight and %d requests wait, want %d and %d", what, n, w, inFlight, waiting)
	}
}

// A counter of which nothing is known admits one request at a time. After a decision it admits what that left room for.
func TestRoom(t *testing.T) {
	d := newDoor(t, 10)
	left := func(n int64, at int64) []window.Decision {
		return []window.Decision{{Allowed: true, Remaining: n, At: at}}
	}
	d.admitted("the first", 1)
	a, b, c := d.waits("the second", 1), d.waits("the third", 1), d.waits("the fourth", 1)
	d.admitted("one for another counter", 2)
	d.load("two counters", 2, 3)
	d.Leave(d.now, ones(1), []uint64{1}, left(2, 5))
	d.want("2 are left", "++-", a, b, c)
	d.admitted("the second again", 1)
	d.admitted("the third again", 1)
	e := d.waits("one more than is left", 1)
	d.Leave(d.now, ones(1), []uint64{1}, left(7, 4)) // made before the other
	d.want("an older decision leaves it at that", "+-", c, e)
	d.Leave(d.now, ones(1), []uint64{1}, nil)
	d.want("a failure makes room, and says nothing else", "++", c, e)
	d.load("the end", 1, 0)
}

// A denial sends all that wait for its counter, and the counter is the suspect of later requests until it is over.
func TestDenial(t *testing.T) {
	d := newDoor(t, 10)
	d.admitted("the first", 1, 2)
	a, b := d.waits("at the second counter", 3, 2), d.waits("at the second counter", 2)
	d.load("a request that waits has nothing in flight", 2, 2)
	d.Leave(d.now, ones(2), []uint64{1, 2}, []window.Decision{{Allowed: true, Remaining: 9}, {RetryAfter: time.Second}})
	d.want("a denial", "++", a, b)
	if got := d.admitted("while it lasts", 1, 2); got != 1 {
		t.Errorf("the suspect is charge %d, want 1", got)
	}
	d.now = time.Second
	if got := d.admitted("when it is over", 1); got != -1 {
		t.Errorf("the suspect is charge %d, want none", got)
	}
}

// No more requests wait than may, and one that is forced in never waits. A waiter that goes, or does not use its turn, leaves the
// turn to the next.
func TestWaiters(t *testing.T) {
	d := newDoor(t, 2)
	d.admitted("the first", 1)
	a, b := d.waits("the second", 1), d.waits("the third", 1)
	if _, _, wait, busy := d.Enter(0, ones(1), []uint64{1}, false); wait != nil || !busy {
		t.Error("a third waits, where 2 may")
	}
	if _, _, wait, busy := d.Enter(0, ones(1), []uint64{1}, true); wait != nil || busy {
		t.Error("one that is forced in waits")
	}
	d.Leave(0, ones(1), []uint64{1}, nil)
	d.want("one is still in flight", "--", a, b)
	d.Pass(a.at, a.wait)
	d.load("one has gone", 1, 1)
	c := d.waits("one more", 1)
	d.Leave(0, ones(1), []uint64{1}, nil)
	d.want("room for one", "+-", b, c)
	d.Pass(b.at, b.wait)
	d.want("the turn is passed on", "+", c)
	d.load("the end", 0, 0)
}

// Two counters may share a place: the second takes it once nothing is in flight on the first, and no denial is taken for one of the other.
func TestSharedPlace(t *testing.T) {
	d := newDoor(t, 10)
	one, other := uint64(1), uint64(1+len(d.places))
	d.admitted("the first", one)
	d.waits("another at its place", other)
	d.Leave(0, ones(1), []uint64{one}, []window.Decision{{RetryAfter: time.Hour}})
	if got := d.admitted("the other takes the place", other); got != -1 {
		t.Errorf("its suspect is charge %d, want none", got)
	}
	d.Leave(0, ones(1), []uint64{other}, []window.Decision{{Allowed: true, Remaining: 5}})
	if got := d.admitted("the first again", one); got != -1 {
		t.Errorf("its suspect is charge %d, want what was known of it forgotten", got)
	}
	d.Leave(0, ones(1), []uint64{one}, []window.Decision{{RetryAfter: time.Hour}})
	d.admitted("one in flight", one)
	if got, _, _, _ := d.Enter(0, ones(1), []uint64{other}, true); got != -1 {
		t.Errorf("beside it, the suspect is charge %d, want none", got)
	}
}

// Costs count as what they are, and nothing overflows.
func TestCosts(t *testing.T) {
	g := New(10)
	cost := func(n int64) []window.Charge { c := ones(1); c[0].Cost = n; return c }
	for _, c := range []struct {
		cost int64
		in   bool
	}{{0, true}, {5, true}, {6, false}, {1 << 62, false}, {1, true}} {
		g.Enter(0, ones(1), []uint64{1}, true)
		g.Leave(0, ones(1), []uint64{1}, []window.Decision{{Allowed: true, Remaining: 10}})
		g.Enter(0, cost(5), []uint64{1}, true)
		if _, _, wait, _ := g.Enter(0, cost(c.cost), []uint64{1}, false); (wait == nil) != c.in {
			t.Errorf("cost %d beside 5 where 10 are left: let in %v, want %v", c.cost, wait == nil, c.in)
		}
		*g = *New(10)
	}
	for range 4 {
		g.Enter(0, cost(1<<62), []uint64{1}, true)
	}
	if _, _, wait, _ := g.Enter(0, cost(0), []uint64{1}, false); wait != nil {
		t.Error("a cost of 0 waits for room")
	}
	if n, _ := g.Load(); n != 4*mostCost {
		t.Errorf("%d units in flight, want %d", n, int64(4*mostCost))
	}
}
