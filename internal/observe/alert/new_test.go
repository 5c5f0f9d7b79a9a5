package alert

import (
	"testing"
	"time"
)

// A rule that is younger than its time, or a zone that has just started, is judged by what has come since: an attack
// that is there at the start is reported at once, and fewer requests than min say nothing. What is denied at the
// beginning and evened out before min has come fires nothing.
func TestAlertOfANewZone(t *testing.T) {
	for name, c := range map[string]struct {
		seconds [][2]int64 // refused and requests
		fired   time.Duration
	}{
		"an attack from the first second on":          {[][2]int64{{50, 100}}, time.Second},
		"an attack with few requests":                 {[][2]int64{{5, 30}, {5, 30}, {5, 30}, {5, 30}}, 4 * time.Second},
		"an attack after a good start":                {[][2]int64{{0, 100}, {0, 100}, {10, 100}, {15, 100}, {25, 100}}, 5 * time.Second},
		"a burst before min":                          {[][2]int64{{9, 9}, {0, 90}, {0, 10}, {0, 100}}, 0},
		"a share below the alert's from the start on": {[][2]int64{{9, 100}, {9, 100}, {9, 100}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAlertWalk(Rule{Ratio: 0.1, Over: time.Minute, Least: 100})
			for _, s := range c.seconds {
				w.second(s[0], s[1])
			}
			if c.fired == 0 {
				w.want(t, 0, 0)
				return
			}
			w.want(t, 1, 0)
			if len(w.fired) > 0 && w.fired[0] != c.fired {
				t.Errorf("it fired after %s, want %s", w.fired[0], c.fired)
			}
		})
	}
}

// A rule that comes with a reload knows nothing of what an older zone denied before. One whose time gets longer goes on
// with what the shorter one has, and one whose time gets shorter with as much of it.
func TestAlertOfANewRule(t *testing.T) {
	rule := func(over time.Duration) *Rule { return &Rule{Ratio: 0.1, Over: over, Least: 100} }
	w := newAlertWalk(Rule{Ratio: 0.1, Over: time.Minute, Least: 100})
	w.rule = nil
	w.seconds(300, 90, 100)
	w.rule = rule(time.Minute)
	w.seconds(120, 5, 100)
	w.want(t, 0, 0)

	w = newAlertWalk(Rule{Ratio: 0.1, Over: 10 * time.Second, Least: 100})
	w.seconds(60, 5, 100)
	w.rule = rule(time.Hour)
	w.seconds(10, 14, 100) // 5 % in ten seconds, and 14 % in ten: 9.5 %
	w.want(t, 0, 0)
	w.second(21, 100) // 10.05 %
	w.want(t, 1, 0)

	w = newAlertWalk(Rule{Ratio: 0.1, Over: time.Hour, Least: 100})
	w.seconds(600, 0, 100)
	w.rule = rule(10 * time.Second)
	w.seconds(9, 11, 100)
	w.want(t, 0, 0)
	w.second(11, 100)
	w.want(t, 1, 0)
}

// Within 5 s of the share being reached over the whole time, by each of many courses, an alert has fired once.
func TestAlertWithinFiveSeconds(t *testing.T) {
	for _, before := range []int64{0, 3, 8} { // percent that are denied
		for _, after := range []int64{15, 40, 100} {
			w := newAlertWalk(Rule{Ratio: 0.1, Over: time.Minute, Least: 100})
			w.seconds(120, before, 100)
			// before + n × (after - before) / 60 = 10
			crossing := time.Duration(float64(10-before) * 60 / float64(after-before) * float64(time.Second))
			w.seconds(60, after, 100)
			w.want(t, 1, 0)
			if late := w.fired[0] - 2*time.Minute - crossing; late < 0 || late > 5*time.Second {
				t.Errorf("from %d %% to %d %%: it fired %s after the crossing", before, after, late)
			}
		}
	}
}
