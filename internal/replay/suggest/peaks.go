package suggest

import (
	"cmp"
	"math"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/series"
	"time"
)

// histogram counts keys and requests by peak.
type histogram map[int]Count

// add counts a key.
func (h histogram) add(peak, keys int, requests int64) {
	c := h[peak]
	h[peak] = Count{peak, c.Keys + keys, c.Requests + requests}
}

// sorted returns h in the order of peaks.
func (h histogram) sorted() []Count {
	all := make([]Count, 0, len(h))
	for _, c := range h {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Count) int { return cmp.Compare(a.Peak, b.Peak) })
	return all
}

// peaks fills in the windows of r, but for their limits and curves.
func (c *Collector) peaks(r *Result) {
	n := len(c.options.Windows)
	up, low := make([]histogram, n), make([]histogram, n)
	for i := range n {
		up[i], low[i] = histogram{}, histogram{}
	}
	c.each(func() (func(*series.Key), func()) {
		upper, lower := make([]histogram, n), make([]histogram, n)
		for i := range n {
			upper[i], lower[i] = histogram{}, histogram{}
		}
		one := func(k *series.Key) {
			for i := range n {
				upper[i].add(c.peak(k, i), 1, int64(k.Requests))
				if c.options.WholeSeconds {
					lower[i].add(k.Peaks[2*i], 1, int64(k.Requests))
				}
			}
		}
		return one, func() {
			for i := range n {
				up[i].merge(upper[i])
				low[i].merge(lower[i])
			}
		}
	})
	for i, w := range c.options.Windows {
		v := Window{Window: w, Text: short(w), Longer: w > r.To.Sub(r.From), Peaks: up[i].sorted()}
		v.ByKey, v.ByRequest = percentiles(v.Peaks)
		if c.options.WholeSeconds {
			least, _ := percentiles(low[i].sorted())
			v.AtLeast = &least
		}
		r.Windows = append(r.Windows, v)
	}
}

// merge adds the counts of other.
func (h histogram) merge(other histogram) {
	for peak, c := range other {
		h.add(peak, c.Keys, c.Requests)
	}
}

// peak returns the peak of a key in the i-th window, at its upper bound.
func (c *Collector) peak(k *series.Key, i int) int {
	if c.options.WholeSeconds {
		return k.Peaks[2*i+1]
	}
	return k.Peaks[i]
}

// percentiles returns those of peaks by keys and by requests: the least peak that so large a part does not exceed.
func percentiles(peaks []Count) (byKey, byRequest Percentiles) {
	var keys, requests int64
	for _, c := range peaks {
		keys += int64(c.Keys)
		requests += c.Requests
	}
	of := func(total int64, n func(Count) int64) Percentiles {
		at := func(part float64) int {
			rest := int64(math.Ceil(part * float64(total)))
			for _, c := range peaks {
				if rest -= n(c); rest <= 0 {
					return c.Peak
				}
			}
			return 0
		}
		return Percentiles{at(.5), at(.9), at(.99), at(.999), at(1)}
	}
	return of(keys, func(c Count) int64 { return int64(c.Keys) }), of(requests, func(c Count) int64 { return c.Requests })
}

// short returns a duration as a Caddyfile has it: 1m, not 1m0s.
func short(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if len(s) > len(zero) && s[len(s)-len(zero):] == zero {
			s = s[:len(s)-2]
		}
	}
	return s
}
