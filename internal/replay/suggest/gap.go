package suggest

import (
	"math"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/series"
)

// The rule of limits. Tests on five mixes of clients, whose truth is known, hold them.
const (
	tail      = 0.03 // of keys, at most, are above a gap
	wide      = 2.0  // how many times as high the first peak above a gap is
	far       = 10   // how much higher it is at least
	nearly    = 0.9  // of the requests above the lowest gap are above the one that is taken
	inGap     = 1.5  // times the highest peak below the gap
	withoutOf = 2.0  // times the highest peak, if there is no gap
)

// gaps finds the gap of each window, and its limit.
func (c *Collector) gaps(r *Result) {
	for i := range r.Windows {
		r.Windows[i].Gap = findGap(r.Windows[i].Peaks, r.Keys)
	}
	// A key above the gap of one window does not raise the limits of others.
	most := make([]int, len(r.Windows))
	c.each(func() (func(*series.Key), func()) {
		mine := make([]int, len(most))
		one := func(k *series.Key) {
			for i := range r.Windows {
				if g := r.Windows[i].Gap; g != nil && c.peak(k, i) >= g.Above {
					return
				}
			}
			for i := range mine {
				mine[i] = max(mine[i], c.peak(k, i))
			}
		}
		return one, func() {
			for i := range most {
				most[i] = max(most[i], mine[i])
			}
		}
	})
	for i := range r.Windows {
		w := &r.Windows[i]
		switch {
		case w.Gap == nil:
			w.Limit = round(withoutOf*float64(most[i]), math.MaxInt)
		default:
			w.Limit = round(inGap*float64(max(most[i], 1)), w.Gap.Above-1)
		}
	}
}

// findGap returns the highest gap above which nearly all requests are that are above any gap. Few keys above a gap may be
// an office behind one address: where keys that are far busier exist, it is given the benefit of the doubt. So is the
// busiest of a few keys, which may be all that use the site.
func findGap(peaks []Count, keys int) *Gap {
	most := int(tail * float64(keys))
	above := Count{}
	var gaps []Gap
	var requests []int64 // above each gap
	for i := len(peaks) - 1; i > 0; i-- {
		above.Keys += peaks[i].Keys
		above.Requests += peaks[i].Requests
		if above.Keys > most {
			break
		}
		low, high := peaks[i-1].Peak, peaks[i].Peak
		if float64(high) >= wide*float64(low) && high-low >= far {
			gaps, requests = append(gaps, Gap{Below: low, Above: high, Keys: above.Keys}), append(requests, above.Requests)
		}
	}
	for i, n := range requests {
		if float64(n) >= nearly*float64(requests[len(requests)-1]) {
			return &gaps[i]
		}
	}
	return nil
}

// round returns the next round number from x on, but at most `most`: people read and change limits.
func round(x float64, most int) int {
	if x < 1 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, step := range []float64{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10} {
		if n := math.Round(step * unit); n >= x && n == step*unit {
			return min(int(n), max(most, 1))
		}
	}
	return min(int(math.Ceil(x)), max(most, 1))
}
