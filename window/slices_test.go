package window_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/windowtest"
)

// TestWeightedFarBeyond has a slice hold so much more than the limit that its units times
// the milliseconds of the slice are beyond int64.
func TestWeightedFarBeyond(t *testing.T) {
	const hour = int64(time.Hour / time.Millisecond)
	algo := window.Slices{Count: 1, Weighted: true}
	c := window.Charge{Cost: 1, Algorithm: algo, Policies: []window.Policy{{Limit: 1_000, Window: time.Hour}}}
	for _, units := range []int64{1e9, 1e12, 1e13, window.MaxProduct} {
		state := &windowtest.Kept{Algorithm: algo}
		fits := func(at int64) bool { return window.Allowed(state.Decide(at, c, false)) }
		state.Settle(hour-1, c, 0, units)
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
