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

// TestDeniedInRealTime floods a key on the clock of this process: times are whole
// milliseconds, and mean the same moment throughout.
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
