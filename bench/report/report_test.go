package report

import (
	"math"
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		values            []float64
		median, low, high float64
	}{
		{[]float64{3}, 3, 3, 3},
		{[]float64{9, 1, 2}, 2, 1, 9},
		{[]float64{4, 1, 9, 2}, 3, 1, 9},
		{[]float64{5, 5, 5, 1, 9}, 5, 1, 9},
	} {
		given := slices.Clone(c.values)
		if got, want := Summarize(given), (Summary{c.median, c.low, c.high}); got != want {
			t.Errorf("Summarize(%v) = %v, want %v", c.values, got, want)
		}
		if !slices.Equal(given, c.values) {
			t.Errorf("Summarize changed %v to %v", c.values, given)
		}
	}
	if got := Summarize(nil); !math.IsNaN(got.Median) {
		t.Errorf("Summarize(nil) = %v, want NaN", got)
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.21: 2, 0.5: 3, 0.99: 5, 1: 5} {
		if got := Quantile(values, q); got != want {
			t.Errorf("Quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := Quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("Quantile of nothing = %v, want NaN", got)
	}
}

// Rounds in which everything was half as fast do not count against anybody.
func TestDivide(t *testing.T) {
	got := Divide([]float64{20, 10, 18}, []float64{10, 5})
	if want := []float64{2, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		value float64
		want  string
	}{
		{0, "0.00"},
		{0.625, "0.62"},
		{-1.5, "-1.50"},
		{9.994, "9.99"},
		{9.996, "10.0"},
		{99.94, "99.9"},
		{99.96, "100"},
		{999.6, "1,000"},
		{123456.4, "123,456"},
		{1234567, "1,234,567"},
		{-123456, "-123,456"},
		{-999, "-999"},
		{math.NaN(), "–"},
		{math.Inf(1), "–"},
	} {
		if got := Number(c.value); got != c.want {
			t.Errorf("Number(%v) = %q, want %q", c.value, got, c.want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	table := Table{
		Metrics: []string{"decisions/s", "µs"},
		Rows: []Row{
			{"ours", [][]float64{{200, 100, 330}, {3, 3, 3}}},
			{"theirs", [][]float64{{100, 50, 110}, {1, 1, 2}}},
		},
		Ratios: []Ratio{
			{Of: "ours", To: "theirs", Aim: AtLeast(2)},
			{Of: "ours", To: "theirs", Metric: 1, Aim: AtMost(2.5)},
			{Of: "ours", Metric: 1},
		},
		Note: "3 rounds.",
	}
	got, err := table.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	const want = `| | decisions/s | µs |
|---|---|---|
| ours | 200 (100 – 330) | 3.00 |
| theirs | 100 (50.0 – 110) | 1.00 (1.00 – 2.00) |

| compared | | aim | |
|---|---|---|---|
| ours ÷ theirs: decisions/s | 2.00 (2.00 – 3.00) | ≥ 2.00 | met |
| ours ÷ theirs: µs | 3.00 (1.50 – 3.00) | ≤ 2.50 | missed |
| ours: µs | 3.00 |  |  |

3 rounds.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	table.Ratios = []Ratio{{Of: "ours", To: "unmeasured"}}
	if _, err := table.Markdown(); err == nil {
		t.Error("a ratio to a row that does not exist is no error")
	}
}

func TestAim(t *testing.T) {
	for _, c := range []struct {
		aim   Aim
		value float64
		met   bool
	}{
		{AtLeast(2), 2, true},
		{AtLeast(2), 1.99, false},
		{AtMost(2), 2, true},
		{AtMost(2), 2.01, false},
		{AtLeast(2), math.NaN(), false},
		{AtMost(2), math.NaN(), false},
	} {
		if got := c.aim.Met(c.value); got != c.met {
			t.Errorf("%v: Met(%v) = %v", c.aim, c.value, got)
		}
	}
}

func TestReplace(t *testing.T) {
	const document = "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb\n<!-- bench:y -->\n<!-- /bench:y -->\n"
	got, err := Replace(document, "x", "new\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "a\n<!-- bench:x -->\nnew\n<!-- /bench:x -->\nb\n<!-- bench:y -->\n<!-- /bench:y -->\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if again, err := Replace(got, "x", "new\n"); err != nil || again != got {
		t.Errorf("a second time: %q, %v", again, err)
	}
	for _, broken := range []string{"", "<!-- bench:x -->\n", "<!-- /bench:x -->\n<!-- bench:x -->\n"} {
		if _, err := Replace(broken, "x", "new\n"); err == nil {
			t.Errorf("%q is no error", broken)
		}
	}
}
