package chart

import (
	"encoding/xml"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// contrast is that of WCAG 2: 21 between black and white.
func contrast(a, b color.RGBA) float64 {
	light := func(c color.RGBA) float64 {
		part := func(v uint8) float64 {
			s := float64(v) / 255
			if s <= 0.04045 {
				return s / 12.92
			}
			return math.Pow((s+0.055)/1.055, 2.4)
		}
		return 0.2126*part(c.R) + 0.7152*part(c.G) + 0.0722*part(c.B)
	}
	high, low := max(light(a), light(b)), min(light(a), light(b))
	return (high + 0.05) / (low + 0.05)
}

func TestColorsAreReadable(t *testing.T) {
	for _, c := range append(slices.Clone(colors), ink) {
		if got := contrast(c, paper); got < 4.5 {
			t.Errorf("%v: contrast %.1f, want 4.5 at least", c, got)
		}
	}
	if contrast(bar, paper) < 3 || contrast(ink, bar) < 3 {
		t.Errorf("a bar has contrast %.1f to the paper and %.1f to ink, want 3 at least", contrast(bar, paper), contrast(ink, bar))
	}
	if paper.A != 0xff {
		t.Error("the paper is not opaque: on a dark page the text would not be readable")
	}
}

var rows = []Row{
	{"zset", []Cell{{200, 100, 330}, {0, 0, 0}}},
	{"a long name of an algorithm { with options }\nand another", []Cell{{12_345, 12_345, 12_345}, {3, 1, math.Inf(1)}}},
	{"without a figure", []Cell{{math.Inf(1), 3, math.Inf(1)}, {math.NaN(), math.NaN(), math.NaN()}}},
}

// drawn returns the SVG text of a picture.
func drawn(t *testing.T, draw func(path string) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "picture.svg")
	if err := draw(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(text, new(struct{})); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "NaN") || strings.Contains(string(text), "Inf") {
		t.Error("the picture has a place that is no number")
	}
	return string(text)
}

// texts returns the texts of a picture.
func texts(svg string) []string {
	var all []string
	for _, match := range regexp.MustCompile(`>([^<>\n]+)</text>`).FindAllStringSubmatch(svg, -1) {
		all = append(all, match[1])
	}
	return all
}

// Nothing is drawn beyond the margins, and text has a font without serifs everywhere.
func inside(t *testing.T, svg string) {
	t.Helper()
	size := regexp.MustCompile(`viewBox="0 0 ([\d.]+) ([\d.]+)"`).FindStringSubmatch(svg)
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	wide, high := number(size[1]), number(size[2])
	_, marks, _ := strings.Cut(svg, "<path") // the first one is the paper
	_, marks, _ = strings.Cut(marks, "/>")
	checked := 0
	for _, path := range regexp.MustCompile(`<path d="([^"]*)"`).FindAllStringSubmatch(marks, -1) {
		for _, at := range regexp.MustCompile(`[ML](-?[\d.]+),(-?[\d.]+)`).FindAllStringSubmatch(path[1], -1) {
			x, y := number(at[1]), number(at[2])
			if x < float64(margin)-1 || x > wide-float64(margin)+1 || y < float64(margin)-1 || y > high-float64(margin)+1 {
				t.Errorf("a mark at %g, %g of %g, %g is in the margin", x, y, wide, high)
			}
			checked++
		}
	}
	for _, at := range regexp.MustCompile(`(?s)<text x="(-?[\d.]+)" y="-(-?[\d.]+)"[^>]*>([^<]*)<`).FindAllStringSubmatch(svg, -1) {
		x, y, end := number(at[1]), number(at[2]), number(at[1])+float64(letters(9, ink).Width(at[3]))
		if x < float64(margin)-1 || end > wide-float64(margin)+1 || y < float64(margin)-1 || y > high-float64(margin)+1 {
			t.Errorf("the text %q at %g, %g of %g, %g is in the margin", at[3], x, y, wide, high)
		}
		checked++
	}
	if checked < 10 {
		t.Errorf("%d places found in the picture", checked)
	}
	if got, want := strings.Count(svg, "font-family:"), strings.Count(svg, families); got != want || want == 0 {
		t.Errorf("%d of %d texts have a font without serifs", want, got)
	}
}

func TestBars(t *testing.T) {
	for _, shared := range []bool{false, true} {
		b := Bars{Title: "Title", About: "about", Columns: []string{"first", "second"}, Rows: rows, Shared: shared}
		svg := drawn(t, b.Draw)
		inside(t, svg)
		got := texts(svg)
		for _, want := range []string{"Title", "about", "first", "second", "zset", "and another", "200", "12,345", "3.00", "–", "10,000"} {
			if !slices.Contains(got, want) {
				t.Errorf("the picture lacks %q; it has %q", want, got)
			}
		}
	}
	inside(t, drawn(t, Bars{Title: "one column", Rows: []Row{{"a", []Cell{{}}}, {"b", []Cell{{5, 5, 5}}}, {"c", []Cell{{5, 0.1, 90}}}}}.Draw))
}

func TestLines(t *testing.T) {
	x := []float64{10, 100, 1_000}
	many := Lines{Title: "Title", About: "about", XLabel: "units", X: x, Log: true, Series: []Series{
		{"zset", []float64{10, 500, 70_000}},
		{"same as zset", []float64{10, 501, 70_000}},
		{"flat", []float64{30, 30, 30}},
		{"flat, too", []float64{60, 60, 60}},
		{"and flat", []float64{120, 120, 120}},
	}}
	svg := drawn(t, many.Draw)
	inside(t, svg)
	got := texts(svg)
	for _, want := range []string{"Title", "about", "units", "10", "100", "1,000", "10,000", "100,000", "zset", "same as zset", "and flat"} {
		if !slices.Contains(got, want) {
			t.Errorf("the picture lacks %q; it has %q", want, got)
		}
	}
	one := Lines{Title: "Title", XLabel: "keys", X: x, Series: []Series{{"", []float64{287_822, 276_708, 217_242}}}}
	svg = drawn(t, one.Draw)
	inside(t, svg)
	got = texts(svg)
	for _, want := range []string{"287,822", "217,242", "0", "200,000"} {
		if !slices.Contains(got, want) {
			t.Errorf("the picture lacks %q; it has %q", want, got)
		}
	}
}

func TestMerge(t *testing.T) {
	got := merge([]Series{
		{"a", []float64{1, 1_000}},
		{"b", []float64{1.5, 900}},
		{"c", []float64{1, 500}},
		{"d", []float64{0.7, 1_000}},
	})
	if len(got) != 2 || got[0].Name != "a\nb\nd" || got[1].Name != "c" {
		t.Errorf("got %v", got)
	}
}

func TestGroup(t *testing.T) {
	got := Group([]Row{{"a", []Cell{{1, 1, 1}}}, {"b", []Cell{{2, 1, 3}}}, {"c", []Cell{{1, 1, 1}}}, {"d", []Cell{{2, 2, 2}}}})
	var names []string
	for _, r := range got {
		names = append(names, r.Name)
	}
	if want := []string{"a\nc", "b", "d"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestSpread(t *testing.T) {
	for name, spans := range map[string][]span{
		"apart":         {{10, 8}, {50, 8}},
		"one place":     {{50, 8}, {50, 8}, {50, 24}},
		"at the top":    {{100, 8}, {100, 8}, {99, 8}},
		"at the bottom": {{0, 8}, {0, 8}},
	} {
		at := spread(spans, 0, 100)
		for i := range spans {
			low, high := at[i]-spans[i].height/2, at[i]+spans[i].height/2
			if low < 0 || high > 100 {
				t.Errorf("%s: text %d from %g to %g", name, i, low, high)
			}
			for k := range i {
				if apart := math.Abs(at[i] - at[k]); apart < (spans[i].height+spans[k].height)/2-1e-9 {
					t.Errorf("%s: texts %d and %d are %g apart", name, i, k, apart)
				}
			}
		}
	}
	if got := spread([]span{{10, 8}, {50, 8}}, 0, 100); !slices.Equal(got, []float64{10, 50}) {
		t.Errorf("texts with room were moved to %v", got)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		highest float64
		n       int
		want    []float64
	}{
		{44_810, 4, []float64{0, 20_000, 40_000}},
		{99, 1, []float64{0, 50}},
		{9, 5, []float64{0, 2, 4, 6, 8}},
		{0.3, 3, []float64{0, 0.1, 0.2, 0.3}},
		{100, 1, []float64{0, 100}},
		{0, 4, []float64{0}},
	} {
		got := ticks(c.highest, c.n)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("ticks(%g, %d) = %v, want %v", c.highest, c.n, got, c.want)
		}
	}
	if got := decades(10, 1_000); !slices.Equal(got, []float64{10, 20, 50, 100, 200, 500, 1_000}) {
		t.Errorf("got %v", got)
	}
	if got := decades(100, 1e6); !slices.Equal(got, []float64{100, 1_000, 10_000, 100_000, 1e6}) {
		t.Errorf("got %v", got)
	}
}

// An ending that no picture has is an error, and so is a folder that does not exist.
func TestDrawFails(t *testing.T) {
	for _, name := range []string{"picture.xyz", "none/picture.svg"} {
		if err := (Bars{Rows: rows}).Draw(filepath.Join(t.TempDir(), name)); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}
