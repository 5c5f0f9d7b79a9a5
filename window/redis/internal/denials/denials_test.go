package denials

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const ms = time.Millisecond

// book is a memory on a clock that is set.
type book struct {
	*testing.T
	*Memory
	now time.Duration
}

func newBook(t *testing.T) *book {
	b := &book{T: t, now: time.Hour}
	b.Memory = New(func() time.Duration { return b.now })
	return b
}

// hear remembers decisions that took a time to come.
func (b *book) hear(took time.Duration, c window.Charge, ds ...window.Decision) {
	asked := b.Ask()
	b.now += took
	b.Remember(asked, []window.Charge{c}, ds)
}

// known returns what is known of a request.
func (b *book) known(charges ...window.Charge) []window.Decision {
	return b.Answer(b.Ask(), charges, nil)
}

// denied returns a decision that denies for a time.
func denied(retry time.Duration) window.Decision {
	return window.Decision{Limit: 5, RetryAfter: retry, ResetAfter: 9 * time.Second, EffectiveWindow: 10 * ms, At: 1_000}
}

func tenSeconds() window.Charge { return windowtest.Charge("zone", "key", 5, 10*time.Second) }

// with returns the charge with something else.
func with(c window.Charge, change func(*window.Charge)) window.Charge {
	c.Policies = slices.Clone(c.Policies)
	change(&c)
	return c
}

// A denial holds from the question on, for as long as the counter has no room, a second and a tenth of the window at most. It
// says how long it lasts from the answer on.
func TestHowLong(t *testing.T) {
	for _, c := range []struct{ retry, after, want time.Duration }{ // after the answer, which took 300 ms; want 0: not known
		{500 * ms, 0, 500 * ms}, {500 * ms, 199 * ms, 301 * ms}, {500 * ms, 200 * ms, 0},
		{5 * time.Second, 699 * ms, 4_301 * ms}, {5 * time.Second, 700 * ms, 0},
		{window.Never, 699 * ms, window.Never}, {window.Never, 700 * ms, 0},
		{301 * ms, 0, 301 * ms}, {301 * ms, 1 * ms, 0}, {300 * ms, 0, 0}, {1 * ms, 0, 0},
		{500 * ms, -301 * ms, 0}, // the clock has stepped back to before the question
	} {
		b := newBook(t)
		b.hear(300*ms, tenSeconds(), denied(c.retry))
		b.now += c.after
		var want []window.Decision
		if c.want > 0 {
			want = []window.Decision{{Limit: 5, RetryAfter: c.want, ResetAfter: 9*time.Second - c.after, EffectiveWindow: max(ms, 10*ms-c.after), At: 1_000 + c.after.Milliseconds()}}
		}
		if got := b.known(tenSeconds()); !slices.Equal(got, want) {
			t.Errorf("%s to wait, %s after the answer: %+v, want %+v", c.retry, c.after, got, want)
		}
	}
	b := newBook(t)
	b.hear(0, windowtest.Charge("zone", "key", 5, 3*time.Second), denied(time.Second))
	if b.now += 300 * ms; b.known(windowtest.Charge("zone", "key", 5, 3*time.Second)) != nil {
		t.Error("a denial outlives a tenth of its window")
	}
	b.hear(0, tenSeconds(), window.Decision{Allowed: true})
	if n, _ := b.Count(); n > 0 {
		t.Errorf("%d denials, where none is in force", n)
	}
}

// CL.THROTTLE, which does not say when it decided, answers in whole seconds, up to two late.
func TestNative(t *testing.T) {
	for _, c := range []struct {
		retry, after time.Duration
		known        bool
	}{{time.Second, 0, false}, {2 * time.Second, 0, false}, {3 * time.Second, 999 * ms, true}, {3 * time.Second, time.Second, false}, {time.Minute, 999 * ms, true}, {time.Minute, time.Second, false}} {
		b := newBook(t)
		one := with(tenSeconds(), func(c *window.Charge) { c.Algorithm = window.GCRA{Native: window.NativeAuto} })
		b.hear(0, one, window.Decision{Limit: 5, RetryAfter: c.retry})
		b.now += c.after
		if ds := b.known(one); (ds != nil) != c.known || ds != nil && (ds[0].At != 0 || ds[0].RetryAfter != c.retry-c.after) {
			t.Errorf("%s to wait, after %s: %+v", c.retry, c.after, ds)
		}
	}
}

// What makes room on a counter ends its denials, and those of which the question was on its way, and no others.
func TestForget(t *testing.T) {
	b := newBook(t)
	one, other := tenSeconds(), with(tenSeconds(), func(c *window.Charge) { c.Key = "other" })
	for b.Slot(&one) == b.Slot(&other) {
		other.Key += "'"
	}
	two := with(one, func(c *window.Charge) { c.Cost = 2 })
	for _, c := range []window.Charge{one, two, other} {
		b.hear(0, c, denied(time.Second))
	}
	onItsWay := b.Ask()
	b.Forget(&one)
	if b.known(one) != nil || b.known(two) != nil || b.known(other) == nil {
		t.Errorf("of the counter with room %v and %v are known, of the other %v", b.known(one), b.known(two), b.known(other))
	}
	b.Remember(onItsWay, []window.Charge{one}, []window.Decision{denied(time.Second)})
	if b.known(one) != nil {
		t.Error("what was asked before there was room is in force")
	}
	b.hear(0, one, denied(time.Second))
	if b.known(one) == nil {
		t.Error("what was asked after there was room is not known")
	}
}

// A denial also denies smaller limits, but for gcra, and no charge that differs in anything else.
func TestCovers(t *testing.T) {
	one := with(tenSeconds(), func(c *window.Charge) { c.Policies = append(c.Policies, window.Policy{Limit: 9, Window: time.Minute}) })
	b := newBook(t)
	b.hear(0, one, denied(time.Second), window.Decision{Allowed: true, Limit: 9, Remaining: 4, ResetAfter: time.Minute, At: 1_000})
	for what, c := range map[string]struct {
		change func(*window.Charge)
		known  bool
	}{
		"a field":        {func(c *window.Charge) { c.Fields = []string{"name", "value"} }, true},
		"smaller limits": {func(c *window.Charge) { c.Policies[0].Limit, c.Policies[1].Limit = 4, 1 }, true},
		"a larger limit": {func(c *window.Charge) { c.Policies[0].Limit, c.Policies[1].Limit = 4, 10 }, false},
		"a window":       {func(c *window.Charge) { c.Policies[1].Window = time.Hour }, false},
		"fewer policies": {func(c *window.Charge) { c.Policies = c.Policies[:1] }, false},
		"a cost":         {func(c *window.Charge) { c.Cost++ }, false},
		"a zone":         {func(c *window.Charge) { c.Zone, c.Key = "zon", "ekey" }, false},
		"an algorithm":   {func(c *window.Charge) { c.Algorithm = window.Log{} }, false},
		"a pack":         {func(c *window.Charge) { c.Pack = 1 }, false},
	} {
		if got := b.known(with(one, c.change)); (got != nil) != c.known {
			t.Errorf("with %s: %+v, want it known %v", what, got, c.known)
		}
	}
	less := b.known(with(one, func(c *window.Charge) { c.Policies[0].Limit, c.Policies[1].Limit = 0, 5 }))
	want := []window.Decision{
		{RetryAfter: window.Never, ResetAfter: 9 * time.Second, EffectiveWindow: 10 * ms, At: 1_000},
		{Limit: 5, ResetAfter: time.Minute, RetryAfter: time.Minute, At: 1_000}, // of 9 5 were used
	}
	if !slices.Equal(less, want) {
		t.Errorf("under smaller limits %+v, want %+v", less, want)
	}
	gcra := with(tenSeconds(), func(c *window.Charge) { c.Algorithm = window.GCRA{} })
	b.hear(0, gcra, denied(time.Second))
	if b.known(gcra) == nil || b.known(with(gcra, func(c *window.Charge) { c.Policies[0].Limit = 4 })) != nil {
		t.Error("with gcra, a smaller limit is another charge")
	}
}

// A request is denied by each of its charges that is. Of the others it says what was decided with that denial, or what holds of
// an empty counter.
func TestOthers(t *testing.T) {
	b := newBook(t)
	zone := func(name string, cost int64) window.Charge {
		c := windowtest.Charge(name, "key", 5, 10*time.Second)
		c.Cost = cost
		return c
	}
	full, used, soon, large := zone("full", 1), zone("used", 1), zone("soon", 2), zone("large", 6)
	b.Remember(b.Ask(), []window.Charge{full, used, soon, large}, []window.Decision{
		denied(5 * time.Second), {Allowed: true, Limit: 5, Remaining: 4, At: 1_000}, denied(100 * ms), denied(window.Never),
	})
	b.now += 500 * ms // when soon is not known to deny any more
	ds := b.known(full, used, soon, large, zone("empty", 3), zone("empty", 6))
	for i, want := range []window.Decision{
		{RetryAfter: 4_500 * ms}, {Allowed: true, Remaining: 4}, {Allowed: true, Remaining: 2}, {RetryAfter: window.Never},
		{Allowed: true, Remaining: 5}, {Remaining: 5, RetryAfter: window.Never},
	} {
		if d := ds[i]; d.Allowed != want.Allowed || d.Remaining != want.Remaining || d.RetryAfter != want.RetryAfter || d.Limit != 5 || d.At != 1_500 {
			t.Errorf("decision %d: %+v, want %+v", i, d, want)
		}
	}
	if b.known(used) != nil || b.known(used, soon) != nil {
		t.Error("a request that nothing denies is known")
	}
}

// The caller may write to what it has given and got.
func TestCopies(t *testing.T) {
	b, one := newBook(t), tenSeconds()
	ds := []window.Decision{denied(time.Second)}
	b.hear(0, one, ds...)
	room := make([]window.Decision, 1)
	got := b.Answer(b.Ask(), []window.Charge{one}, room)
	if &got[0] != &room[0] {
		t.Error("the answer does not use the room that there is")
	}
	got[0].Limit, ds[0].Limit, one.Policies[0].Limit = 1, 2, 99
	if got := b.known(tenSeconds()); got == nil || got[0].Limit != 5 {
		t.Errorf("got %+v, want what was decided", got)
	}
}

// What is remembered is bounded, and counted rightly: what is over goes when it is found.
func TestBounds(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, policies := range []int{1, 20} {
		before, b := heap(), newBook(t)
		deny := func(n int) {
			one := windowtest.Charge("zone", fmt.Sprintf("a key of some length, %d", n), 0, time.Hour)
			one.Policies = slices.Repeat(one.Policies, policies)
			b.hear(0, one, slices.Repeat([]window.Decision{denied(window.Never)}, policies)...)
		}
		for n := range 60_000 {
			deny(n)
		}
		n, bytes := b.Count()
		if took := heap() - before; bytes > MostBytes || bytes < MostBytes*9/10 || took > MostBytes {
			t.Errorf("%d policies: %d denials of %d bytes, and %d on the heap; want nearly %d", policies, n, bytes, took, MostBytes)
		}
		b.now += time.Second
		for i := range n {
			deny(i % 1_000)
		}
		if n, _ := b.Count(); n > 2_000 {
			t.Errorf("%d policies: %d denials, most of which are over", policies, n)
		}
		runtime.KeepAlive(b)
	}
	b := newBook(t)
	key := func(i int) window.Charge { return windowtest.Charge("zone", fmt.Sprint(i), 0, time.Hour) }
	for i := range 600 { // each twice, as if they had been asked for at once
		b.hear(0, key(i%300), denied(window.Never))
	}
	if n, bytes := b.Count(); n != 300 || bytes < 300*200 || bytes > 300*500 {
		t.Errorf("%d denials of %d bytes, want 300", n, bytes)
	}
	b.now += time.Second
	for i := range 300 {
		b.known(key(i))
	}
	if n, bytes := b.Count(); n != 0 || bytes != 0 {
		t.Errorf("%d denials of %d bytes when all are over", n, bytes)
	}
}
