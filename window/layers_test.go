package window_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// FuzzLayers compares every field of every decision with those of slices of the
// fine length, until the clock first steps back. From then on it looks for more
// units than fit.
func FuzzLayers(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		o := ops(data)
		fine := time.Duration(1+o.next()%8) * time.Millisecond
		layers := window.Layers{Coarse: time.Duration(1+o.next()%8) * fine, Fine: fine}
		plain := window.Slices{Size: fine}
		policies := func() []window.Policy {
			ps := o.policies()
			for i := range ps {
				ps[i].Window += layers.Coarse
			}
			return ps
		}
		c := window.Charge{Algorithm: layers, Policies: policies()}
		now, log, stepped := windowtest.Start, new(windowtest.Log), false
		state, want := &windowtest.Kept{Algorithm: layers}, &windowtest.Kept{Algorithm: plain}
		for len(o) > 0 {
			now += o.next() % 64
			op, longest := o.next(), time.Duration(0)
			switch {
			case op%16 == 0:
				for _, p := range c.Policies {
					longest = max(longest, p.Window)
				}
				log.Forget(now - longest.Milliseconds()) // as the state may have
				now -= o.next() * o.next()
				stepped = true
				for i, at := range *log {
					(*log)[i] = min(at, now)
				}
			case op%16 == 1 && !stepped:
				c.Policies = policies()
				log = new(windowtest.Log) // a shorter window forgets
				continue
			case op%16 == 2 && !stepped:
				at, delta := now-o.next(), o.next()-128
				if delta < 0 {
					state.GiveBack(now, c, at, -delta)
					want.GiveBack(now, c, at, -delta)
				} else if delta > 0 {
					state.ChargeMore(now, c, delta)
					want.ChargeMore(now, c, delta)
				}
				log = new(windowtest.Log)
				continue
			}
			c.Cost = op / 16
			take := op%16 != 3
			ds := state.Decide(now, c, take)
			if !stepped {
				c.Algorithm = plain
				if other := want.Decide(now, c, take); !slices.Equal(ds, other) {
					t.Fatalf("at %d: decide(%+v, %v) = %+v, want %+v of %+v", now, c, take, ds, other, layers)
				}
				c.Algorithm = layers
			}
			if take && window.Allowed(ds) {
				log.Spend(now, c.Cost)
				for _, p := range c.Policies {
					if n := log.Count(now, p); n > p.Limit && c.Cost > 0 {
						t.Fatalf("%+v at %d: %d units of %+v in %v", layers, now, n, p, *log)
					}
				}
			}
			if !stepped || take {
				checkRetry(t, state, now, c, ds)
			}
			log.Forget(now - 1_000)
		}
	})
}

// traffic decides every so often, and returns the most fields that were read
// for one decision.
func traffic(s *windowtest.Kept, c window.Charge, now *int64, every, times int64) int {
	most := 0
	for range times {
		*now += every
		most = max(most, window.FactsOf(s.Algorithm).FieldsRead(s.History, *now, &c))
		s.Decide(*now, c, true)
	}
	return most
}

func TestLayersFieldsRead(t *testing.T) {
	layers := window.Layers{Coarse: 10 * time.Second, Fine: time.Second}
	minute := window.Policy{Limit: 1_000_000, Window: time.Minute}
	for i, c := range []struct {
		algo     window.Algorithm
		policies []window.Policy
		want     int
	}{
		0: {layers, []window.Policy{minute}, 2 + 5 + 10},
		1: {window.Slices{Size: time.Second}, []window.Policy{minute}, 61},
		2: {layers, []window.Policy{{Limit: 1_000_000, Window: 55_500 * time.Millisecond}}, 2 + 4 + 10},
		3: {layers, []window.Policy{minute, {Limit: 1_000, Window: time.Minute}}, 2 + 5 + 10},
		4: {layers, []window.Policy{minute, {Limit: 1_000_000, Window: 25 * time.Second}}, 2 + 5 + 10 + 5},
	} {
		now := windowtest.Start
		got := traffic(&windowtest.Kept{Algorithm: c.algo}, window.Charge{Algorithm: c.algo, Policies: c.policies, Cost: 1}, &now, 37, 20_000)
		if got != c.want {
			t.Errorf("case %d: %+v reads %d fields at most, want %d", i, c.algo, got, c.want)
		}
	}
}

func TestAdaptiveFieldsRead(t *testing.T) {
	algo := window.Slices{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	c := window.Charge{Algorithm: algo, Policies: []window.Policy{{Limit: 3_000, Window: time.Minute}}, Cost: 1}
	s, now := &windowtest.Kept{Algorithm: algo}, windowtest.Start
	for round := range 3 {
		traffic(s, c, &now, 100, 600)
		low := traffic(s, c, &now, 100, 600)
		high := traffic(s, c, &now, 10, 20_000)
		traffic(s, c, &now, 60_000, 1)
		t.Logf("round %d: %d fields at low traffic, %d at high", round, low, high)
		if low > 31 || high < 300 || 4*low > high {
			t.Errorf("round %d: %d fields at low traffic, %d at high; want 31 and more than 300", round, low, high)
		}
	}
}

func TestLayersCheck(t *testing.T) {
	minute := window.Policy{Limit: 1, Window: time.Minute}
	for i, c := range []struct {
		algo   window.Layers
		policy window.Policy
		want   string
	}{
		0:  {window.Layers{Coarse: 10 * time.Second, Fine: time.Second}, minute, ""},
		1:  {window.Layers{Coarse: time.Minute, Fine: time.Second}, minute, ""},
		2:  {window.Layers{Coarse: 7 * time.Second, Fine: time.Second}, minute, ""},
		3:  {window.Layers{Coarse: time.Second}, minute, ": layers: fine 0s is not a whole number of milliseconds above 0"},
		4:  {window.Layers{Fine: time.Second}, minute, ": layers: coarse 0s is not a whole multiple of fine 1s"},
		5:  {window.Layers{Coarse: time.Second, Fine: 10 * time.Second}, minute, ": layers: coarse 1s is not a whole multiple of fine 10s"},
		6:  {window.Layers{Coarse: time.Second, Fine: 1500 * time.Microsecond}, minute, "fine 1.5ms is not a whole number of milliseconds"},
		7:  {window.Layers{Coarse: 61 * time.Second, Fine: time.Second}, minute, ": layers: coarse 1m1s is longer than the window 1m0s"},
		8:  {window.Layers{Coarse: 10 * time.Second, Fine: time.Millisecond}, minute, "coarse 10s and fine 1ms would make a decision on the window 1m0s read 10006 fields, where 1000 is the most"},
		9:  {window.Layers{Coarse: 2 * time.Second, Fine: time.Second}, window.Policy{Limit: 1, Window: 1_996 * time.Second}, ""},
		10: {window.Layers{Coarse: 2 * time.Second, Fine: time.Second}, window.Policy{Limit: 1, Window: 1_998 * time.Second}, "read 1001 fields"},
	} {
		charge := window.Charge{Zone: "api", Algorithm: c.algo, Policies: []window.Policy{c.policy}}
		err := engine.CheckCharges([]window.Charge{charge})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("case %d: CheckCharges(%+v) = %v, want %q", i, c.algo, err, c.want)
		}
	}
}
