package suggest

import (
	"maps"
	"slices"
	"time"
)

// Span is a part of a log.
type Span struct {
	Start    time.Time `json:"start"`
	Requests int64     `json:"requests"`
	Denied   int64     `json:"denied"`
}

// minutes counts requests by minute since 1970. The minute that was counted last is at hand: most requests are in it.
type minutes struct {
	counts map[int64]int64
	at, n  int64
}

// add counts a request.
func (m *minutes) add(minute int64) {
	if m.n > 0 && minute != m.at {
		m.flush()
	}
	m.at = minute
	m.n++
}

// flush takes the minute at hand into the counts.
func (m *minutes) flush() {
	if m.counts == nil {
		m.counts = map[int64]int64{}
	}
	if m.n > 0 {
		m.counts[m.at] += m.n
		m.n = 0
	}
}

// merge adds the counts of other.
func (m *minutes) merge(other *minutes) {
	m.flush()
	other.flush()
	for at, n := range other.counts {
		m.counts[at] += n
	}
}

// mostSpans is how many parts a log gets at most, unless they would be longer than a day.
const mostSpans = 120

// spans returns parts of equal length, in seconds, from the first request to the last.
func spans(all, denied *minutes) (int64, []Span) {
	all.flush()
	denied.flush()
	if len(all.counts) == 0 {
		return 0, nil
	}
	from, to := slices.Min(slices.Collect(maps.Keys(all.counts))), slices.Max(slices.Collect(maps.Keys(all.counts)))
	step := int64(0)
	for _, step = range []int64{1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440} {
		if (to-from)/step < mostSpans {
			break
		}
	}
	from -= from % step
	parts := make([]Span, (to-from)/step+1)
	for i := range parts {
		parts[i].Start = time.Unix((from+int64(i)*step)*60, 0).UTC()
	}
	for at, n := range all.counts {
		parts[(at-from)/step].Requests += n
	}
	for at, n := range denied.counts {
		parts[(at-from)/step].Denied += n
	}
	return step * 60, parts
}
