package windowtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// eachWithHorizon is eachOfWindows, and all kinds of slices that can be packed.
func eachWithHorizon(t *testing.T, open Open, run func(f *fixture)) {
	eachOfWindows(t, open, run)
	for _, algo := range []window.Slices{{Count: 1}, {Count: MaxPackedSlices}, {Count: MaxPackedSlices, Weighted: true}} {
		t.Run(fmt.Sprintf("packed %+v", algo), func(t *testing.T) { run(newFixture(t, packed(open), algo)) })
	}
}

// testHistoryStays uses up a long window, and then has requests with a short one come:
// nothing more passes under the long one before its time.
func testHistoryStays(t *testing.T, open Open) {
	eachWithHorizon(t, open, func(f *fixture) {
		long, short := per(10, 3_600_000), per(10, 5_000)
		for _, test := range []struct {
			zone     string
			lookback time.Duration
			first    window.Policy
		}{
			{"a placeholder", 0, long},
			{"a static window that was not used", time.Hour, short},
		} {
			c := f.charge(test.zone, "key", 1, test.first)
			c.Lookback = test.lookback
			for range 10 {
				f.take(c)
				f.clock.Add(1)
			}
			for range rounds(500) {
				f.clock.Add(7_001)
				c.Policies = []window.Policy{short}
				f.take(c)
				c.Policies = []window.Policy{long}
				if ds := f.take(c); window.Allowed(ds) {
					f.Errorf("%s: one more passes in the hour, at %d: %+v", test.zone, f.clock.Now()-Start, ds)
					break
				}
			}
			f.clock.Set(Start)
		}
	})
}

// testHorizon lets requests with different windows meet on one counter, in any order and
// with pauses and give-backs, and sees every admission.
func testHorizon(t *testing.T, open Open) {
	eachWithHorizon(t, open, func(f *fixture) {
		most := func(limit int64) int64 { return limit }
		if a, ok := f.algo.(window.Slices); ok && a.Weighted {
			most = func(limit int64) int64 { return 2*limit - 1 }
		}
		for n := range rounds(4) {
			r, name := random(n)
			o := &mixed{fixture: f, Rand: r, most: most, limits: []window.Policy{
				per(5+r.Int64N(5), 5_000), per(8+r.Int64N(8), 5_000+r.Int64N(60_000)), per(10+r.Int64N(20), 60_000), per(20+r.Int64N(20), 290_000),
			}}
			if n%2 == 1 { // as a zone whose windows are all known
				o.lookback = 290 * time.Second
			}
			for range 600 {
				o.step(name)
			}
			if o.denied < 50 || len(o.seen) < 100 {
				f.Errorf("%s: %d admitted, %d denied: too few to mean something", name, len(o.seen), o.denied)
			}
			f.clock.Set(Start)
		}
	})
}

// mixed is a counter whose requests have one of several limits.
type mixed struct {
	*fixture
	*rand.Rand
	limits   []window.Policy
	most     func(limit int64) int64
	lookback time.Duration
	seen     []admitted
	denied   int
}

type admitted struct {
	at, units int64
	policy    window.Policy
}

func (m *mixed) step(name string) {
	switch m.IntN(30) {
	case 0:
		m.clock.Add(m.Int64N(200_000))
	default:
		m.clock.Add(m.Int64N(2_500))
	}
	now := m.clock.Now()
	if last := len(m.seen) - 1; last >= 0 && m.IntN(12) == 0 {
		back := m.seen[last]
		if last == 0 || m.seen[last-1].at != back.at {
			c := m.charge(name, "key", 1, back.policy)
			m.giveBack(c, back.at, back.units)
			m.seen = m.seen[:last]
		}
		return
	}
	p := m.limits[m.IntN(len(m.limits))]
	c := m.charge(name, "key", 1+m.Int64N(3), p)
	c.Lookback = m.lookback
	if !window.Allowed(m.take(c)) {
		m.denied++
		return
	}
	m.seen = append(m.seen, admitted{now, c.Cost, p})
	if got := m.counted(now, p); got > m.most(p.Limit) {
		m.Fatalf("%s: at %d, %d units in %s, want %d at most", name, now-Start, got, p.Window, m.most(p.Limit))
	}
}

// counted returns the units in the window of p that a decision at now must know of: all
// units if the zone says how far back it looks; else those since the first charge of a
// chain, up to now, under windows that are as long.
func (m *mixed) counted(now int64, p window.Policy) (units int64) {
	ms := p.Window.Milliseconds()
	since := now
	for i := len(m.seen) - 1; i >= 0 && m.lookback == 0; i-- {
		if a := m.seen[i]; a.policy.Window >= p.Window && a.at+a.policy.Window.Milliseconds() > since {
			since = a.at
		}
	}
	for _, a := range m.seen {
		if a.at > now-ms && (m.lookback > 0 || a.at >= since) {
			units += a.units
		}
	}
	return units
}
