package alert

import (
	"math"
	"testing"
	"time"
)

// alertWalk is a zone whose clock is set. In each second it refuses some of its requests.
type alertWalk struct {
	rule  *Rule
	state alertState
	born  time.Time
	now   time.Time
	sum   Counted
	fired []time.Duration // since born
	ended []time.Duration // of alerts that were resolved
	last  alertStep
}

func newAlertWalk(r Rule) *alertWalk {
	born := time.Unix(1_800_000_000, 0)
	return &alertWalk{rule: &r, born: born, now: born}
}

func (w *alertWalk) second(refused, requests int64) {
	w.sum.Denied += refused / 2
	w.sum.FailedClosed += refused - refused/2
	w.sum.Allowed += requests - refused
	w.now = w.now.Add(time.Second)
	w.last = w.state.step(w.rule, w.born, w.now, w.sum)
	if w.last.fired {
		w.fired = append(w.fired, w.now.Sub(w.born))
	}
	if w.last.resolved {
		w.ended = append(w.ended, w.now.Sub(w.born))
	}
}

func (w *alertWalk) seconds(n int, refused, requests int64) {
	for range n {
		w.second(refused, requests)
	}
}

func (w *alertWalk) want(t *testing.T, fired, resolved int) {
	t.Helper()
	if len(w.fired) != fired || len(w.ended) != resolved {
		t.Errorf("it fired at %v and was resolved at %v, want %d and %d times", w.fired, w.ended, fired, resolved)
	}
}

// An alert fires in the second in which the share over the whole time is reached, once, and is resolved
// at half of it.
func TestAlertFiresAndIsResolved(t *testing.T) {
	w := newAlertWalk(Rule{0.1, time.Minute, 100})
	w.seconds(120, 9, 100)
	w.want(t, 0, 0)
	w.seconds(60, 20, 100) // 9 % + n × 11/60 points: 10 % after 5.45 seconds
	w.want(t, 1, 0)
	if w.fired[0] != 126*time.Second {
		t.Errorf("it fired after %s, want 2m6s", w.fired[0])
	}
	w.seconds(60, 6, 100) // 6 % at the end
	w.want(t, 1, 0)
	w.seconds(60, 0, 100) // 6 % less n × 6/60: 5 % after 10 seconds
	w.want(t, 1, 1)
	if w.ended[0] != (240+10)*time.Second {
		t.Errorf("it was resolved after %s, want 4m10s", w.ended[0])
	}
	if w.last.requests != 6000 || w.last.refused != 0 {
		t.Errorf("the last minute had %d of %d, want 0 of 6000", w.last.refused, w.last.requests)
	}
}

// Exactly the share is enough, and one request less is not.
func TestAlertAtTheShare(t *testing.T) {
	for _, c := range []struct {
		refused int64
		fires   int
	}{{49, 0}, {50, 1}} {
		w := newAlertWalk(Rule{0.05, 10 * time.Second, 1000})
		w.second(c.refused, 1000)
		w.want(t, c.fires, 0)
	}
}

// Fewer requests than min never fire, however many are denied.
func TestAlertNeedsRequests(t *testing.T) {
	w := newAlertWalk(Rule{0.1, 10 * time.Second, 100})
	w.seconds(600, 9, 9) // 90 in 10 s
	w.want(t, 0, 0)
	w.second(10, 10)
	w.seconds(8, 10, 10)
	w.want(t, 0, 0)
	w.second(10, 10) // 100 in 10 s
	w.want(t, 1, 0)
}

// A share that goes up and down by four points around ten, in a period of a minute at most, is one
// alert.
func TestAlertDoesNotFlap(t *testing.T) {
	for _, period := range []int{2, 7, 30, 60} {
		for _, over := range []time.Duration{10 * time.Second, time.Minute, time.Hour} {
			w := newAlertWalk(Rule{0.1, over, 1})
			for i := range 4 * 3600 {
				points := 10 + 4*(2*float64(i%period)/float64(period-1)-1)
				w.second(int64(math.Round(10*points)), 1000)
			}
			w.want(t, 1, 0)
		}
	}
}

// Without requests an alert is over after its time. With some, but fewer than min, it is after twice
// that, so that traffic around min is no row of alerts.
func TestAlertEndsWithTheTraffic(t *testing.T) {
	w := newAlertWalk(Rule{0.1, 10 * time.Second, 100})
	w.seconds(10, 10, 20)
	w.want(t, 1, 0)
	w.seconds(10, 0, 0)
	w.want(t, 1, 1)

	w = newAlertWalk(Rule{0.1, 10 * time.Second, 100})
	w.seconds(10, 10, 20)
	w.seconds(14, 5, 5) // below 100 from the seventh on
	w.want(t, 1, 0)
	w.seconds(10, 5, 5)
	w.want(t, 1, 1)

	w = newAlertWalk(Rule{0.1, 10 * time.Second, 100})
	for i := range 600 {
		w.second(5, 9+2*int64(i/10%2)) // 90 and 110 in turn
	}
	w.want(t, 1, 0)
}

// A process that stood still for a while, and a rule that comes late, count what they should.
func TestAlertAfterAPause(t *testing.T) {
	w := newAlertWalk(Rule{0.1, 10 * time.Second, 1})
	w.seconds(5, 0, 100)
	w.now = w.now.Add(time.Hour)
	w.second(0, 10)
	if w.want(t, 0, 0); w.last.requests != 10 {
		// What came in the pause cannot be told from what came before it.
		t.Errorf("%d requests count, want 10", w.last.requests)
	}

	w = newAlertWalk(Rule{0.1, 10 * time.Second, 1})
	w.now, w.sum = w.now.Add(time.Hour), Counted{Denied: 1000}
	w.second(0, 0)
	if w.want(t, 0, 0); w.last.requests != 0 {
		t.Errorf("%d requests count from before the alert was configured, want none", w.last.requests)
	}
}

// An alert that is taken out of the configuration is resolved.
func TestAlertIsTakenOut(t *testing.T) {
	w := newAlertWalk(Rule{0.1, 10 * time.Second, 100})
	w.seconds(10, 10, 20)
	w.rule = nil
	w.seconds(10, 10, 20)
	w.want(t, 1, 1)
	if len(w.state.samples) != 0 {
		t.Errorf("%d samples are kept", len(w.state.samples))
	}
}

// The longest alert keeps no more than a sample a second.
func TestAlertIsBounded(t *testing.T) {
	w := newAlertWalk(Rule{0.1, time.Hour, 100})
	w.seconds(3*3600, 1, 100)
	if n := len(w.state.samples); n > 3601 {
		t.Errorf("it keeps %d samples", n)
	}
}
