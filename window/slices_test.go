package window_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestWeightedFarBeyond makes a slice hold so much more than the limit that its units times
// the milliseconds of the slice are beyond int64.
func TestWeightedFarBeyond(t *testing.T) {
	const hour = int64(time.Hour / time.Millisecond)
	algo := window.Slices{Count: 1, Weighted: true}
	c := window.Charge{Cost: 1, Algorithm: algo, Policies: []window.Policy{{Limit: 1_000, Window: time.Hour}}}
	for _, units := range []int64{1e9, 1e12, 1e13, window.MaxProduct} {
		state := &windowtest.Kept{Algorithm: algo}
		fits := func(at int64) bool { return window.Allowed(state.Decide(at, c, false)) }
		state.ChargeMore(hour-1, c, units)
		for now := hour; now < 2*hour-hour/50; now += hour / 50 {
			d := state.Decide(now, c, false)[0]
			if d.Allowed {
				t.Errorf("%d units: %+v at %d ms of the next slice, want a denial", units, d, now-hour)
			}
			wait := d.RetryAfter.Milliseconds()
			if fits(now+wait-1) || !fits(now+wait) {
				t.Errorf("%d units: a retry after %d ms at %d is not exact", units, wait, now)
			}
		}
	}
}

// TestSlicesCheckPolicy holds how many slices a decision may read.
func TestSlicesCheckPolicy(t *testing.T) {
	short := window.Slices{Size: time.Millisecond}
	for i, c := range []struct {
		algo   window.Slices
		limit  int64
		length time.Duration
		want   string
	}{
		0:  {window.Slices{}, 1_000_000, time.Hour, ""},
		1:  {short, 600, time.Minute, ""}, // a slice holds a unit at least
		2:  {short, 601, time.Minute, "size 1ms would make a decision on the limit 601 and the window 1m0s read 601 slices, where 600 is the most; use longer slices, "},
		3:  {short, 1_000_000, 600 * time.Millisecond, ""},
		4:  {short, 1_000_000, time.Minute, "read 60000 slices"},
		5:  {window.Slices{Size: time.Hour}, 1_000_000, time.Minute, ""},
		6:  {window.Slices{Count: 600}, 1_000_000, time.Minute, ""},
		7:  {window.Slices{Count: 601}, 1_000_000, time.Minute, "count 601 would make a decision on the limit 1000000 and the window 1m0s read 601 slices, where 600 is the most; use fewer slices, "},
		8:  {window.Slices{Count: 1_000_000}, 1_000_000, 600 * time.Millisecond, ""},
		9:  {window.Slices{Min: 100 * time.Millisecond, Max: time.Second}, 1_000_000, time.Minute, ""},
		10: {window.Slices{Min: 99 * time.Millisecond, Max: time.Second}, 1_000_000, time.Minute, "adaptive 99ms 1s would make a decision on the limit 1000000 and the window 1m0s read 606 slices, where 600 is the most; write a longer min, "},
		11: {window.Slices{Min: time.Millisecond, Max: time.Second}, 600, time.Hour, ""},
		12: {window.Slices{Count: 601, Weighted: true}, 601, time.Minute, "read 601 slices"},
	} {
		one := window.Charge{Zone: "api", Algorithm: c.algo, Policies: []window.Policy{{Limit: c.limit, Window: c.length}}}
		err := engine.CheckCharges([]window.Charge{one})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("case %d: CheckCharges(%+v) = %v, want %q", i, c.algo, err, c.want)
		}
	}
}
