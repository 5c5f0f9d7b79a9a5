package window_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestStreamCheck(t *testing.T) {
	for i, c := range []struct {
		keep time.Duration
		want string
	}{
		0: {0, ""},
		1: {24 * time.Hour, ""},
		2: {-time.Millisecond, "keep -1ms is not"},
		3: {time.Microsecond, "keep 1µs is not"},
	} {
		err := window.CheckAlgorithm(window.Stream{Keep: c.keep})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("case %d: keep %s: Check() = %v, want %q", i, c.keep, err, c.want)
		}
	}
}

// FuzzStream compares every field of every decision with a plain list of units, on
// a clock that also steps back and with policies that change.
func FuzzStream(f *testing.F) {
	seeds(f)
	f.Add([]byte{0, 3, 50, 9, 8, 255, 8, 8, 9, 16, 4, 8, 0, 8, 130, 8, 9, 255, 0, 2, 9, 99, 3, 20, 8, 0, 8, 9, 10})
	f.Fuzz(func(t *testing.T, data []byte) {
		o := ops(data)
		now, log, state := windowtest.Start, new(windowtest.Log), &windowtest.Kept{Algorithm: window.Stream{}}
		policies := o.policies()
		for len(o) > 0 {
			if step := o.next(); step < 192 {
				now += step % 64
			} else {
				now -= step - 192
			}
			c := window.Charge{Algorithm: window.Stream{}, Policies: policies}
			switch op := o.next(); op % 8 {
			case 0:
				policies = o.policies()
			case 1:
				if n := o.next() % 8; n > 0 {
					state.ChargeMore(now, c, n)
					log.PullBack(now)
					log.Spend(now, n)
					log.Forget(now - longest(policies))
				}
			case 2:
				at, n := now-o.next(), 1+o.next()%8
				state.GiveBack(now, c, at, n)
				log.GiveBack(at, n)
			default:
				c.Cost = op / 8 % 8
				take := op%8 != 3
				view := log
				if !take { // looks, and changes nothing
					view = new(windowtest.Log)
					*view = slices.Clone(*log)
				}
				view.PullBack(now)
				want := windowtest.Expect(now, []window.Charge{c}, []*windowtest.Log{view}, take)
				got := state.Decide(now, c, take)
				if !slices.Equal(got, want) {
					t.Fatalf("at %d: decide(%+v, %v) = %+v, want %+v of %v", now, c, take, got, want, *view)
				}
				if take && c.Cost > 0 && window.Allowed(got) {
					log.Forget(now - longest(policies))
				}
			}
		}
	})
}

func longest(policies []window.Policy) int64 {
	var w time.Duration
	for _, p := range policies {
		w = max(w, p.Window)
	}
	return w.Milliseconds()
}
