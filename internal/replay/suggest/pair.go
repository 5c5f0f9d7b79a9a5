package suggest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/series"
)

// points is how many limits a curve has.
const points = 20

// pair chooses the limit for bursts, which is that of the shortest window, and the one for what goes on for long: that
// of the window with the widest gap, or the longest window without one.
func (c *Collector) pair(r *Result) {
	var usable []*Window
	for i := range r.Windows {
		if w := &r.Windows[i]; !w.Longer || i == 0 {
			usable = append(usable, w)
		}
	}
	if len(usable) == 0 {
		return
	}
	burst := usable[0]
	r.Pair = []Limit{{burst.Limit, burst.Window, burst.Text}}
	if len(usable) == 1 {
		return
	}
	long := usable[len(usable)-1]
	for _, w := range usable[1:] {
		if w.Gap.width() > long.Gap.width() {
			long = w
		}
	}
	r.Pair[0].Limit = min(burst.Limit, long.Limit)
	r.Pair = append(r.Pair, Limit{long.Limit, long.Window, long.Text})
}

// width returns how many times higher the peaks above g are, 0 without a gap.
func (g *Gap) width() float64 {
	if g == nil {
		return 0
	}
	return float64(g.Above) / float64(g.Below)
}

// curves fills in what limits would have denied: those of each window's curve, and the pair. Only keys whose peak is
// above a limit are simulated.
func (c *Collector) curves(r *Result) {
	curves := make([][]Point, len(r.Windows))
	for i := range r.Windows {
		for _, limit := range candidates(&r.Windows[i]) {
			curves[i] = append(curves[i], Point{Limit: limit})
		}
		r.Windows[i].Curve = curves[i]
	}
	denied := minutes{}
	c.each(func() (func(*series.Key), func()) {
		var s simulator
		when := minutes{}
		count := func(ms int64) { when.add(ms / time.Minute.Milliseconds()) }
		mine := make([][]Point, len(curves))
		for i := range curves {
			mine[i] = slices.Clone(curves[i])
		}
		var pair Denied
		var top []Top
		one := func(k *series.Key) {
			for i := range mine {
				for j := range mine[i] {
					p := &mine[i][j]
					if p.Limit >= c.peak(k, i) {
						break // so are those that follow
					}
					c.simulate(&s, k, []Limit{{Limit: p.Limit, Window: r.Windows[i].Window}}, &p.Denied)
				}
			}
			s.onDeny = count
			denied := c.simulate(&s, k, r.Pair, &pair)
			s.onDeny = nil
			if denied > 0 {
				top = c.top(append(top, Top{k.Name, k.Requests, denied, c.upper(slices.Clone(k.Peaks))}), false)
			}
		}
		return one, func() {
			for i := range mine {
				for j := range mine[i] {
					curves[i][j].add(mine[i][j].Denied)
				}
			}
			denied.merge(&when)
			r.Denied.add(pair)
			r.Top = append(r.Top, top...)
		}
	})
	r.Top = c.top(r.Top, true)
	r.Step, r.Spans = spans(&c.minutes, &denied)
}

// add adds what another part of the keys was denied.
func (d *Denied) add(other Denied) {
	d.Requests += other.Requests
	d.Keys += other.Keys
	d.Uncertain += other.Uncertain
}

// simulate adds to d what limits would have denied a key, and returns how many requests.
func (c *Collector) simulate(s *simulator, k *series.Key, limits []Limit, d *Denied) int64 {
	exceeds, folded := false, 0
	for _, l := range limits {
		i := slices.Index(c.options.Windows, l.Window)
		exceeds = exceeds || c.peak(k, i) > l.Limit
		if k.Folded > 0 {
			folded = max(folded, c.upper(k.FoldedPeaks)[i]-l.Limit)
		}
	}
	if !exceeds {
		return 0
	}
	n := s.denied(k.Times, limits)
	if folded > 0 {
		// At least what exceeded a limit at the folded peak was denied, and what the times that are kept would have been
		// without those before them; at most all but the first n, where n is the lowest limit.
		lowest := slices.MinFunc(limits, func(a, b Limit) int { return cmp.Compare(a.Limit, b.Limit) }).Limit
		n = max(n, folded)
		d.Uncertain += int64(k.Requests - lowest - n)
	}
	if n > 0 {
		d.Requests += int64(n)
		d.Keys++
	}
	return int64(n)
}

// top returns the keys with the most denied requests. It sorts only if there are many, or at last.
func (c *Collector) top(all []Top, last bool) []Top {
	if n := c.options.Top; last || len(all) > 2*n+100 {
		slices.SortFunc(all, func(a, b Top) int {
			return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Key, b.Key))
		})
		return all[:min(n, len(all))]
	}
	return all
}

// candidates returns limits from the median of peaks to the highest one, at about equal ratios.
func candidates(w *Window) []int {
	low, high := float64(max(w.ByKey.P50, 1)), float64(w.ByKey.Max)
	var all []int
	for i := range points {
		limit := int(math.Round(low * math.Pow(high/low, float64(i)/(points-1))))
		if len(all) == 0 || limit > all[len(all)-1] {
			all = append(all, limit)
		}
	}
	return all
}
