package window_test

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// ops reads a history from the bytes of a fuzzer.
type ops []byte

func (o *ops) next() int64 {
	if len(*o) == 0 {
		return 0
	}
	b := (*o)[0]
	*o = (*o)[1:]
	return int64(b)
}

func (o *ops) policies() []window.Policy {
	ps := make([]window.Policy, 1+o.next()%3)
	for i := range ps {
		ps[i] = window.Policy{Limit: o.next() % 16, Window: time.Duration(1+o.next()) * time.Millisecond}
	}
	return ps
}

func seeds(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 3, 9, 0, 1, 5, 0, 1, 0, 2, 1, 1, 9, 1, 1})
	f.Add([]byte{2, 2, 99, 5, 20, 7, 40, 0, 10, 1, 1, 10, 1, 1, 10, 2, 2, 60, 1, 6, 0, 3, 9, 9, 200, 1})
	f.Add([]byte{1, 15, 255, 10, 59, 3, 3, 9, 3, 3, 0, 7, 2, 5, 3, 3, 7, 3, 0, 0, 3, 3, 255, 2, 3, 3, 60, 3, 3})
}

// FuzzZset compares every field of every decision with a plain list of units.
func FuzzZset(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		o := ops(data)
		now, log, state := windowtest.Start, new(windowtest.Log), &windowtest.Kept{Algorithm: window.Zset{}}
		policies := o.policies()
		longest := policies[0]
		for _, p := range policies {
			longest.Window = max(longest.Window, p.Window)
		}
		for len(o) > 0 {
			now += o.next() % 64
			log.Forget(now - longest.Window.Milliseconds())
			c := window.Charge{Algorithm: window.Zset{}, Policies: policies}
			switch op := o.next(); op % 8 {
			case 0:
				longest.Limit = o.next()
				policies[len(policies)-1] = longest // a shorter window would forget
			case 1:
				n := o.next() % 8
				if n > 0 {
					state.ChargeMore(now, c, n)
				}
				log.Spend(now, n)
			case 2:
				at, n := now-o.next(), 1+o.next()%8
				state.GiveBack(now, c, at, n)
				log.GiveBack(at, n)
			default:
				c.Cost = op / 8 % 8
				take := op%8 != 3
				want := windowtest.Expect(now, []window.Charge{c}, []*windowtest.Log{log}, take)
				if got := state.Decide(now, c, take); !slices.Equal(got, want) {
					t.Fatalf("at %d: decide(%+v, %v) = %+v, want %+v of %v", now, c, take, got, want, *log)
				}
			}
		}
	})
}

// FuzzSlices holds strict slices against a plain list of units: never over the
// limit, early by a slice at most, and RetryAfter to the millisecond.
func FuzzSlices(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		o := ops(data)
		algo := window.Slices{Weighted: o.next()%2 == 1}
		switch n := o.next(); n % 3 {
		case 0:
			algo.Count = 1 + n/3
		case 1:
			algo.Size = time.Duration(1+n/3) * time.Millisecond
		default:
			algo.Weighted = false
			algo.Min = time.Duration(1+n/3) * time.Millisecond
			algo.Max = algo.Min + time.Duration(o.next())*time.Millisecond
		}
		now, log, state := windowtest.Start, new(windowtest.Log), &windowtest.Kept{Algorithm: algo}
		policies := o.policies()
		for len(o) > 0 {
			now += o.next() % 64
			log.Forget(now - 1_000)
			op := o.next()
			c := window.Charge{Algorithm: algo, Policies: policies, Cost: op / 4}
			take := op%4 != 3
			ds := state.Decide(now, c, take)
			if take && window.Allowed(ds) {
				log.Spend(now, c.Cost)
			}
			for i, d := range ds {
				p := policies[i]
				n := log.Count(now, p)
				if most := worst(algo, p); n > most {
					t.Fatalf("%+v at %d: %d units of %+v in %v", algo, now, n, p, *log)
				}
				if !algo.Weighted {
					wide := window.Policy{Window: p.Window + slack(algo, p)}
					if n = log.Count(now, wide); !d.Allowed && n+c.Cost <= p.Limit {
						t.Fatalf("%+v at %d: decide(%+v) = %+v, with %d units in %s", algo, now, c, d, n, wide.Window)
					}
				}
			}
			checkRetry(t, state, now, c, ds)
		}
	})
}

// worst returns how many units a window may hold at most.
func worst(a window.Slices, p window.Policy) int64 {
	if a.Weighted {
		return max(0, 2*p.Limit-1)
	}
	return p.Limit
}

// slack returns how much longer than it has to a denial may last.
func slack(a window.Slices, p window.Policy) time.Duration {
	if longest := max(a.Size, a.Max); longest > 0 {
		return min(longest, p.Window)
	}
	return time.Duration((p.Window.Milliseconds()+a.Count-1)/a.Count) * time.Millisecond
}

func checkRetry(t *testing.T, s *windowtest.Kept, now int64, c window.Charge, ds []window.Decision) {
	t.Helper()
	var wait time.Duration
	for _, d := range ds {
		wait = max(wait, d.RetryAfter)
	}
	if wait == 0 || wait == window.Never {
		return
	}
	at := now + wait.Milliseconds()
	if window.Allowed(s.Decide(at-1, c, false)) || !window.Allowed(s.Decide(at, c, false)) {
		t.Fatalf("at %d: decide(%+v) = %+v: not the time to retry", now, c, ds)
	}
}
