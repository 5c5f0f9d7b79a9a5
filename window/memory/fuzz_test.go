package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// FuzzStore does anything with a few keys in a store of little room, on a clock
// that also steps back, and checks what holds for every decision.
func FuzzStore(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1, 5, 10, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add([]byte{4, 200, 3, 7, 250, 9, 9, 9, 128, 0, 255, 1, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, now := newStore(t, 4)
		next := func() int64 {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int64(b)
		}
		random := func() window.Charge {
			n := next()
			c := charge(strconv.FormatInt(n%2, 10), strconv.FormatInt(n/2%16, 10), n/32, time.Duration(1+next())*time.Millisecond)
			c.Cost = next() % 12
			switch n := next(); n % 4 {
			case 0:
				c.Algorithm = window.Slices{Count: n / 4, Weighted: n > 128}
			case 1:
				c.Algorithm = window.Slices{Size: time.Duration(n/4) * time.Millisecond, Weighted: n > 128}
			case 2:
				c.Policies = append(c.Policies, window.Policy{Limit: n / 4, Window: time.Duration(1+next()*2) * time.Millisecond})
			}
			return c
		}
		for len(data) > 0 {
			switch n := next(); n % 8 {
			case 0:
				now.Add(-n * n)
			default:
				now.Add(n / 4)
			}
			c := random()
			charges := []window.Charge{c}
			if d := random(); d.Zone != c.Zone || d.Key != c.Key {
				charges = append(charges, d)
			}
			var ds []window.Decision
			var err error
			switch n := next(); n % 8 {
			case 0:
				err = engine.Settle(t.Context(), s, c, now.Load()-n/8, n-128)
			case 1:
				err = s.Reset(t.Context(), c)
			case 2:
				s.sweep()
			case 3:
				s.SetMaxKeys(1 + n/8)
			case 4:
				ds, err = s.Peek(t.Context(), charges)
			default:
				ds, err = s.Take(t.Context(), charges)
			}
			if err != nil {
				t.Fatal(err)
			}
			checkDecisions(t, charges, ds)
		}
		now.Store(1 << 50)
		s.sweep()
		for i := range s.shards {
			if sh := &s.shards[i]; sh.len != 0 || len(slotsOf(sh)) != 0 || len(sh.zones.ids) != 0 {
				t.Fatalf("shard %d: %d keys are left in %d slots, %d zones", i, sh.len, len(slotsOf(sh)), len(sh.zones.ids))
			}
		}
		if n := s.Keys(); n != 0 {
			t.Fatalf("%d keys are left", n)
		}
	})
}

func checkDecisions(t *testing.T, charges []window.Charge, ds []window.Decision) {
	t.Helper()
	i := 0
	for _, c := range charges {
		for _, p := range c.Policies {
			if len(ds) == 0 {
				return
			}
			d := ds[i]
			i++
			never := c.Cost > p.Limit
			switch {
			case d.Limit != p.Limit, d.Remaining < 0, d.Remaining > p.Limit,
				d.Allowed != (d.RetryAfter == 0), never != (d.RetryAfter == window.Never), !never && d.RetryAfter > p.Window,
				d.ResetAfter < 0, d.ResetAfter > p.Window, d.EffectiveWindow <= 0, d.EffectiveWindow > p.Window,
				!d.Allowed && !never && d.Remaining == 0 && d.RetryAfter < d.EffectiveWindow:
				t.Fatalf("%+v of %+v: %+v", p, c, d)
			}
		}
	}
}
