package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestDeniedWalks asks for the same few requests again and again, in steps of time
// that are short beside a second, or end when a denial does. Windows are longer
// than it takes, for keys expire in real time.
func TestDeniedWalks(t *testing.T) {
	for _, algo := range append(algorithms, window.Slices{Size: 100 * time.Millisecond, Weighted: true}, window.Slices{Min: 50 * time.Millisecond, Max: time.Second}) {
		t.Run(fmt.Sprintf("%T%+[1]v", algo), func(t *testing.T) {
			t.Parallel()
			clock := windowtest.NewClock()
			s := openRemembering(t, clock).(*windowtest.Remembering)
			algo := suited(algo, 5*time.Second)
			a, _ := algo.(window.Slices)
			passed := 0
			for walk := range 20 {
				r := rand.New(rand.NewPCG(3, uint64(walk)))
				var zones [2]window.Charge
				for i := range zones {
					zones[i] = charge(fmt.Sprintf("walk%d-%d", walk, i), "key", 1+r.Int64N(10), time.Duration(60_000+r.Int64N(5_000))*time.Millisecond)
					if zones[i].Algorithm = algo; r.IntN(2) == 0 && !a.Weighted {
						zones[i].Policies = append(zones[i].Policies, window.Policy{Limit: 1 + r.Int64N(10), Window: time.Duration(30_000+r.Int64N(40_000)) * time.Millisecond})
					}
				}
				for range 300 {
					charges := slices.Clone(zones[r.IntN(2):])
					for i := range charges {
						charges[i].Cost = 1 + r.Int64N(2)*r.Int64N(4)
					}
					ds, err := s.Take(t.Context(), charges)
					if err != nil {
						t.Fatal(err)
					}
					switch {
					case window.Allowed(ds):
						passed++
						if r.IntN(10) == 0 {
							err = engine.Settle(t.Context(), s, charges[0], ds[0].At, r.Int64N(5)-3)
						}
					case r.IntN(100) == 0:
						err = s.Reset(t.Context(), charges[0])
					case r.IntN(4) == 0:
						if retry := ds[r.IntN(len(ds))].RetryAfter; retry < window.Never {
							clock.Add(max(0, retry.Milliseconds()-r.Int64N(2)))
						}
					default:
						clock.Add(r.Int64N(80))
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			if s.Checked < 1_000 || passed < 500 || s.Late > 0 {
				t.Errorf("%d denials may have been remembered, %d passed, %d were late", s.Checked, passed, s.Late)
			}
		})
	}
}

// TestDeniedClockStepsBack holds that a denial is not in force before it was made.
func TestDeniedClockStepsBack(t *testing.T) {
	w := watch(t, redis.Options{})
	one := charge("zone", "key", 0, time.Hour)
	w.wantTake("at first", false, 1, one)
	w.clock.Add(-1)
	w.wantTake("a millisecond before", false, 1, one)
	w.clock.Add(999)
	w.wantTake("999 ms after", false, 0, one)
	w.clock.Add(1)
	w.wantTake("a second after", false, 1, one)
}

// TestDeniedAnswerTakesTime has answers that take 300 ms: a denial is over when its
// time from the question has passed, and says how long it lasts from the answer.
func TestDeniedAnswerTakesTime(t *testing.T) {
	clock := windowtest.NewClock()
	var asked, retry atomic.Int64
	addr := fakeServer(t, func([]string) string {
		asked.Add(1)
		clock.Add(200)
		at := clock.Now()
		clock.Add(100)
		return integers(at, -5, 0, 0, retry.Load(), 9_000, 10)
	})
	s := newStore(t, redis.Options{Addresses: []string{addr}, Now: clock.Now})
	one := charge("zone", "key", 1, 10*time.Second)
	for _, c := range []struct {
		retry, after, asked int64 // ms after the answer
		want                window.Decision
	}{
		{500, 0, 0, window.Decision{RetryAfter: 500, ResetAfter: 9_000, EffectiveWindow: 10}},
		{500, 199, 0, window.Decision{RetryAfter: 301, ResetAfter: 8_801, EffectiveWindow: 1}},
		{500, 200, 1, window.Decision{}},
		{5_000, 699, 0, window.Decision{RetryAfter: 4_301, ResetAfter: 8_301, EffectiveWindow: 1}},
		{5_000, 700, 1, window.Decision{}},
		{-1, 699, 0, window.Decision{RetryAfter: -1, ResetAfter: 8_301, EffectiveWindow: 1}},
		{-1, 700, 1, window.Decision{}},
		{301, 0, 0, window.Decision{RetryAfter: 301, ResetAfter: 9_000, EffectiveWindow: 10}},
		{301, 1, 1, window.Decision{}},
		{300, 0, 1, window.Decision{}},
		{1, 0, 1, window.Decision{}},
	} {
		clock.Add(1_000_000)
		retry.Store(c.retry)
		first := take(t, s, one)[0]
		if n, _ := redis.Denials(s).Count(); (n > 0) != (c.retry < 0 || c.retry > 300) {
			t.Errorf("%+v: %d denials are remembered", c, n)
		}
		clock.Add(c.after)
		asked.Store(0)
		got := take(t, s, one)[0]
		if n := asked.Load(); n != c.asked {
			t.Errorf("%+v: %d questions", c, n)
		}
		if c.asked > 0 {
			continue
		}
		want := c.want
		want.Limit, want.At = 1, first.At+c.after
		for _, d := range []*time.Duration{&want.RetryAfter, &want.ResetAfter, &want.EffectiveWindow} {
			*d = time.Duration(d.Nanoseconds()) * time.Millisecond // which the table has
		}
		if want.RetryAfter < 0 {
			want.RetryAfter = window.Never
		}
		if got != want {
			t.Errorf("%+v: Take = %+v, want %+v", c, got, want)
		}
	}
}

// TestDeniedWhileReset has a reset come after the decision and before its answer.
func TestDeniedWhileReset(t *testing.T) {
	var s *redis.Store
	var asked atomic.Int64
	one := charge("zone", "key", 1, time.Hour)
	addr := fakeServer(t, func(args []string) string {
		if args[5] == "take" {
			asked.Add(1)
			if err := s.Reset(t.Context(), one); err != nil {
				t.Error(err)
			}
		}
		return integers(windowtest.Start, -5, 0, 0, 9_000, 9_000, 9_000)
	})
	s = newStore(t, redis.Options{Addresses: []string{addr}, Now: windowtest.NewClock().Now})
	for range 3 {
		take(t, s, one)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("%d questions, want 3: what was decided before the reset is not true after it", n)
	}
}

// TestDeniedInRealTime floods a key on the clock of this process: times are whole
// milliseconds, and tell of the same moment throughout.
func TestDeniedInRealTime(t *testing.T) {
	s := newStore(t, redis.Options{})
	one := charge("zone", "key", 1, time.Hour)
	first := take(t, s, one)[0].At
	at := int64(0)
	for n := 0; n < 1_000 || at < first+20; n++ {
		d := take(t, s, one)[0]
		if d.Allowed || d.RetryAfter%time.Millisecond != 0 || d.At+d.RetryAfter.Milliseconds() != first+time.Hour.Milliseconds() || d.RetryAfter != d.ResetAfter {
			t.Fatalf("Take = %+v, want an hour after %d", d, first)
		}
		at = max(at, d.At)
	}
	if _, err := s.Peek(t.Context(), []window.Charge{one}); err != nil {
		t.Error(err)
	}
}

// TestDeniedErrors holds that an outage is not remembered, and that what is denied
// stays so in one.
func TestDeniedErrors(t *testing.T) {
	own, clock := redistest.Start(t), windowtest.NewClock()
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now})
	full, other := charge("full", "key", 0, time.Hour), charge("other", "key", 0, time.Hour)
	take(t, s, full)
	if err := errors.Join(s.Ping(t.Context()), s.Ping(t.Context())); err != nil {
		t.Error(err)
	}
	own.Kill()
	if d := take(t, s, full)[0]; d.Allowed {
		t.Errorf("Take in an outage = %+v, want a denial", d)
	}
	results := s.TakeBatch(t.Context(), [][]window.Charge{{other}, {full}, {other}})
	for i, r := range results {
		if unavailable := errors.Is(r.Err, window.ErrUnavailable); unavailable != (i != 1) || i == 1 && r.Decisions[0].Allowed {
			t.Errorf("TakeBatch in an outage: result %d = %+v", i, r)
		}
	}
	if err := s.Ping(t.Context()); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("Ping in an outage = %v, want ErrUnavailable", err)
	}
	clock.Add(1_000)
	if _, err := s.Take(t.Context(), []window.Charge{full}); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("Take in an outage, a second later = %v, want ErrUnavailable", err)
	}
	own.Restart(t)
	eventually(t, patience, "a denial after the outage", func() bool {
		ds, err := s.Take(t.Context(), []window.Charge{other})
		return err == nil && !ds[0].Allowed
	})
}

// TestDeniedNative has CL.THROTTLE answer in whole seconds, up to two late.
func TestDeniedNative(t *testing.T) {
	clock := windowtest.NewClock()
	var asked, retry atomic.Int64
	s := newStore(t, redis.Options{Now: clock.Now, Addresses: []string{fakeServer(t, func([]string) string {
		asked.Add(1)
		return integers(1, 10, 0, retry.Load(), 60)
	})}})
	one := nativeCharge("key", 1, window.GCRA{}, window.Policy{Limit: 10, Window: time.Minute})
	for _, c := range []struct{ retry, after, asked int64 }{{1, 0, 1}, {2, 0, 1}, {3, 0, 0}, {3, 999, 0}, {3, 1_000, 1}, {30, 999, 0}, {30, 1_000, 1}} {
		clock.Add(1_000_000)
		retry.Store(c.retry)
		take(t, s, one)
		clock.Add(c.after)
		asked.Store(0)
		d := take(t, s, one)[0]
		if n := asked.Load(); n != c.asked || d.Allowed || d.At != 0 {
			t.Errorf("%+v: Take = %+v after %d questions", c, d, n)
		}
		if want := c.retry*1_000 - c.after; c.asked == 0 && d.RetryAfter.Milliseconds() != want {
			t.Errorf("%+v: Take = %+v, want %d ms to wait", c, d, want)
		}
	}
}

// TestDeniedConcurrent resets keys and gives back to them while others are denied
// there: afterwards, a request passes if and only if there is room.
func TestDeniedConcurrent(t *testing.T) {
	s := newStore(t, redis.Options{})
	parallel(4, func(i int) {
		one := charge("zone", strconv.Itoa(i), 1, time.Hour)
		for round := range 100 {
			var admitted atomic.Int64
			parallel(4, func(j int) {
				for range 3 {
					switch ds, err := s.Take(t.Context(), []window.Charge{one}); {
					case err != nil:
						t.Error(err)
					case ds[0].Allowed:
						admitted.Store(ds[0].At)
					}
				}
				var err error
				switch {
				case j > 0:
				case round%2 == 0:
					err = s.Reset(t.Context(), one)
				default:
					err = s.GiveBack(t.Context(), one, admitted.Load(), 1)
				}
				if err != nil {
					t.Error(err)
				}
			})
			want, err := s.Peek(t.Context(), []window.Charge{one})
			if err != nil {
				t.Error(err)
				return
			}
			if got := take(t, s, one); got[0].Allowed != want[0].Allowed {
				t.Errorf("key %d, round %d: Take = %+v, where Peek is %+v", i, round, got, want)
			}
			if err := s.Reset(t.Context(), one); err != nil {
				t.Error(err)
			}
		}
	})
}
