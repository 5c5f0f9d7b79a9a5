package window_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestWeightedFarBeyond has a slice hold so much more than the limit that its units times
// the milliseconds of the slice are beyond int64.
func TestWeightedFarBeyond(t *testing.T) {
	const hour = int64(time.Hour / time.Millisecond)
	algo := window.Slices{Count: 1, Weighted: true}
	c := &window.Charge{Cost: 1, Algorithm: algo, Policies: []window.Policy{{Limit: 1_000, Window: time.Hour}}}
	for _, units := range []int64{1e9, 1e12, 1e13, window.MaxProduct} {
		state, ds := algo.NewState(), make([]window.Decision, 1)
		state.Settle(hour-1, c, 0, units)
		for now := hour; now < 2*hour-hour/50; now += hour / 50 {
			if state.Look(now, c, ds) {
				t.Errorf("%d units: %+v at %d ms of the next slice, want a denial", units, ds[0], now-hour)
			}
			state.Explain(now, c, ds, false)
			wait := ds[0].RetryAfter.Milliseconds()
			if state.Look(now+wait-1, c, ds) || !state.Look(now+wait, c, ds) {
				t.Errorf("%d units: a retry after %d ms at %d is not exact", units, wait, now)
			}
		}
	}
}
