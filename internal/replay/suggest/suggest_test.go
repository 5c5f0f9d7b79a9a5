package suggest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestFolded sees that what is denied lies between the bounds when times were folded, and is exact from Exact on.
func TestFolded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 6))
	at := int64(1_700_000_000_000_000_000)
	var hits []hit
	for range 1_500_000 {
		at += r.Int64N(2e6)
		key := fmt.Sprint(r.IntN(1 + r.IntN(1000)))
		if r.IntN(10) == 0 {
			key = "busy"
		}
		hits = append(hits, hit{key, at})
	}
	windows := []time.Duration{time.Second, 10 * time.Second, time.Minute}
	exact := collect(t, Options{Windows: windows, Memory: 1 << 30, Top: 10}, hits)
	bounded := collect(t, Options{Windows: windows, Memory: 4 << 20, Top: 10}, hits)
	if exact.Folded != nil || bounded.Folded == nil || bounded.Folded.Requests == 0 {
		t.Fatalf("folded %v and %v", exact.Folded, bounded.Folded)
	}
	uncertain := 0
	for i := range windows {
		a, b := exact.Windows[i], bounded.Windows[i]
		if a.ByKey != b.ByKey || a.ByRequest != b.ByRequest || a.Limit != b.Limit || len(a.Curve) != len(b.Curve) {
			t.Errorf("%s: %+v, want %+v", a.Text, b, a)
		}
		for j := range a.Curve {
			want, got := a.Curve[j], b.Curve[j]
			if got.Limit != want.Limit || want.Denied.Requests < got.Denied.Requests || want.Denied.Requests > got.Denied.Requests+got.Uncertain {
				t.Errorf("%s: %+v, want %+v", a.Text, got, want)
			}
			if got.Uncertain > 0 {
				uncertain++
			}
			if got.Limit >= bounded.Folded.Exact[i] && got != want {
				t.Errorf("%s: %+v, want exactly %+v", a.Text, got, want)
			}
		}
	}
	if uncertain == 0 {
		t.Error("nothing was uncertain")
	}
}

func TestCurve(t *testing.T) {
	var hits []hit
	for i := range int64(100) {
		hits = append(hits, hit{"even", i * 1e9}, hit{fmt.Sprint("once ", i), i * 1e9})
		if i < 50 {
			hits = append(hits, hit{"burst", i * 1e6})
		}
	}
	r := collect(t, Options{Windows: []time.Duration{time.Second, 10 * time.Second, time.Hour}, Memory: 1 << 30, Top: 5}, hits)
	if r.Keys != 102 || r.Requests != 250 || r.To.Sub(r.From) != 99*time.Second {
		t.Errorf("%+v", r)
	}
	if !r.Windows[2].Longer || r.Windows[1].Longer {
		t.Error("an hour is longer than the log, ten seconds are not")
	}
	w := r.Windows[1]
	if w.ByKey != (Percentiles{1, 1, 10, 50, 50}) || w.ByRequest != (Percentiles{10, 50, 50, 50, 50}) {
		t.Errorf("%+v %+v", w.ByKey, w.ByRequest)
	}
	for _, p := range w.Curve {
		// All but the limit is denied of the burst, and 10 − limit in 10 s of the even key, which makes a request a second.
		want := Denied{Requests: int64(max(0, 50-p.Limit) + max(0, 10*(10-p.Limit)))}
		if p.Limit < 50 {
			want.Keys++
		}
		if p.Limit < 10 {
			want.Keys++
		}
		if p.Denied != want {
			t.Errorf("%d: %+v, want %+v", p.Limit, p.Denied, want)
		}
	}
	if n := len(w.Curve); n < 10 || w.Curve[0].Limit != 1 || w.Curve[n-1].Limit != 50 {
		t.Errorf("%+v", w.Curve)
	}
	if len(r.Pair) != 2 || r.Pair[1].Text != "10s" {
		t.Errorf("%+v", r.Pair)
	}
}

func TestSpans(t *testing.T) {
	from := time.Date(2024, 5, 1, 10, 0, 30, 0, time.UTC)
	var hits []hit
	for i := range 200 {
		at := from.Add(time.Duration(i) * time.Minute).UnixNano()
		hits = append(hits, hit{"a", at})
		for range 3 * (i % 2) * (i / 100) {
			hits = append(hits, hit{"b", at})
		}
	}
	r := collect(t, Options{Windows: []time.Duration{time.Second, time.Minute}, Memory: 1 << 30}, hits)
	if r.Step != 120 || len(r.Spans) != 100 || r.Spans[0].Start != from.Truncate(time.Minute) {
		t.Fatal(r.Step, len(r.Spans))
	}
	requests, denied := int64(0), int64(0)
	for _, s := range r.Spans {
		requests += s.Requests
		denied += s.Denied
	}
	if requests != int64(len(hits)) || denied != r.Denied.Requests {
		t.Error(requests, denied, r.Denied)
	}
	// The pair denies nothing here. A day and an empty log have spans, too.
	var all, some minutes
	for i := range int64(1440 * 300) {
		all.add(i)
		if i%1440 == 7 {
			some.add(i)
		}
	}
	step, parts := spans(&all, &some)
	if step != 86400 || len(parts) != 300 || parts[299].Requests != 1440 || parts[299].Denied != 1 {
		t.Error(step, len(parts), parts[299])
	}
	if _, parts := spans(&minutes{}, &minutes{}); parts != nil {
		t.Error(parts)
	}
}

func TestGap(t *testing.T) {
	for name, c := range map[string]struct {
		peaks []Count
		keys  int
		want  *Gap
	}{
		"none":              {[]Count{{1, 50, 50}, {2, 40, 80}, {3, 10, 30}}, 100, nil},
		"crawlers":          {[]Count{{10, 98, 900}, {40, 1, 40}, {400, 1, 4000}}, 100, &Gap{40, 400, 1}},
		"too many above it": {[]Count{{10, 90, 900}, {400, 10, 4000}}, 100, nil},
		"too near":          {[]Count{{1, 98, 900}, {4, 2, 4000}}, 100, nil},
		"office":            {[]Count{{10, 970, 9000}, {100, 1, 500}, {2000, 20, 100000}}, 1000, &Gap{100, 2000, 20}},
		"no office":         {[]Count{{10, 970, 9000}, {100, 10, 50000}, {2000, 20, 100000}}, 1000, &Gap{10, 100, 30}},
		"few keys":          {[]Count{{10, 29, 300}, {400, 1, 4000}}, 30, nil},
		"one key":           {[]Count{{10, 1, 10}}, 1, nil},
	} {
		got := findGap(c.peaks, c.keys)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestRound(t *testing.T) {
	for _, c := range []struct {
		x    float64
		most int
		want int
	}{{0, 9, 1}, {1, 9, 1}, {1.2, 9, 2}, {7, 99, 8}, {9, 99, 10}, {11, 99, 12}, {61, 999, 80}, {81, 999, 100}, {1234, 9999, 1500}, {61, 70, 70}, {3e6 + 1, math.MaxInt, 4e6}} {
		if got := round(c.x, c.most); got != c.want {
			t.Errorf("%g, at most %d: %d, want %d", c.x, c.most, got, c.want)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Second: "1s", time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 0: "0s"} {
		if got := short(d); got != want {
			t.Errorf("%s: %s", d, got)
		}
	}
}
