package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// evil is a text that would be code if it were not escaped.
const evil = `<script>alert("x")</script>'"><img src=//example.com/x onerror=alert(1)> & {{.Title}} ` + "` \u202e"

// example is a page with all there is.
func example(text string) Document {
	bars := Plot{Title: text, About: text, XName: "time", Time: true, Names: [2]string{text, "denied"}, Marks: []Mark{{1_700_003_600, text}}}
	for i := range 48 {
		bars.Bars = append(bars.Bars, Bar{X0: 1_700_000_000 + float64(i)*3600, X1: 1_700_003_600 + float64(i)*3600, Y: float64(i * i), Part: float64(i % 3)})
	}
	peaks := Plot{Title: "Peaks", XName: "peak", Names: [2]string{"keys", ""}, LogX: true, LogY: true, Bars: []Bar{{1, 2, 1500, 0}, {2, 4, 70, 0}, {4, 8, 0, 0}, {8, 16, 1, 0}}, Marks: []Mark{{10, "limit 10"}, {1000, "limit 1000"}}}
	curve := Plot{Title: "Curve", XName: "limit", LogX: true, Share: true, Lines: []Line{{text, [][2]float64{{1, 1}, {10, 0.5}, {100, 0}}}, {"keys", [][2]float64{{1, 1}, {10, 0.2}, {100, 0}}}}}
	return Document{
		Title: text, About: text, Facts: []Fact{{text, text, text, true}}, Notes: []string{text},
		Sections: []Section{{Title: text, About: text, Facts: []Fact{{text, text, text, false}}, Code: text, Plots: []Plot{bars, peaks, curve, {Title: "an empty plot is left out"}},
			Beside: []Table{{text, []string{text, "n"}, [][]string{{text, "1"}}}},
			Tables: []Table{{text, []string{text, "n"}, [][]string{{text, "1"}}}}}},
	}
}

// TestEscapes sees that no text becomes code, and that the page is well-formed.
func TestEscapes(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, example(evil)); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "<img", "onerror=alert(1)>", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, asset := range []string{`src="`, "url(", "@import", "http://", "https://"} {
		if strings.Contains(page, asset) {
			t.Errorf("the page asks for something: %s", asset)
		}
	}
	if !strings.Contains(page, "sha256-") || strings.Contains(page, "an empty plot") {
		t.Error("no policy, or an empty plot")
	}
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDraw(t *testing.T) {
	p := Plot{Names: [2]string{"requests", "denied"}, XName: "x", Bars: []Bar{{0, 10, 100, 0}, {10, 20, 50, 0.01}}}
	d, ok := p.draw()
	if !ok || len(d.Bars) != 2 {
		t.Fatal(d)
	}
	a, b := d.Bars[0], d.Bars[1]
	if a.X != left || a.H != plotHeight || b.H != plotHeight/2 || a.PartH != 0 || b.PartH != thinnest {
		t.Errorf("%+v %+v", a, b)
	}
	if d.Rows[0][0] != "0 to 9" || d.Rows[1][1] != "50" || a.Text != "0 to 9: requests 100, denied 0" {
		t.Errorf("%q, %q", d.Rows, a.Text)
	}
	p = Plot{Time: true, Names: [2]string{"n", ""}, Bars: []Bar{{1_700_001_000, 1_700_020_000, 1, 0}}}
	d, _ = p.draw()
	if n := len(d.XTicks); n != 5 || d.XTicks[0].Text != "23:00" || d.XTicks[1].Text != "Nov 15" || d.XTicks[n-1].Text != "03:00" {
		t.Errorf("%+v", d.XTicks)
	}
	p = Plot{LogX: true, Share: true, Lines: []Line{{"a", [][2]float64{{1, 1}, {100, 0}}}}, Marks: []Mark{{10, "m"}}}
	d, _ = p.draw()
	if d.Lines[0].D != "M52 22L506 200" || d.Marks[0].X != left+plotWidth/2 {
		t.Errorf("%+v", d)
	}
	if _, ok := (&Plot{}).draw(); ok {
		t.Error("an empty plot")
	}
	one := Plot{Names: [2]string{"n", ""}, LogX: true, LogY: true, Bars: []Bar{{1, 1, 0, 0}}}
	if d, ok := one.draw(); !ok || strings.Contains(d.XTicks[0].Text, "NaN") {
		t.Errorf("%+v", d)
	}
}

func TestTexts(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", 0.5: "0.5"} {
		if got := Number(v); got != want {
			t.Errorf("%g: %s", v, got)
		}
	}
	for v, want := range map[float64]string{0: "0%", 1: "100%", 0.25: "25%", 0.1234: "12.3%", 0.00123: "0.12%", 0.6000000000000001: "60%", 0.07: "7%", 0.0001234: "0.012%"} {
		if got := Percent(v); got != want {
			t.Errorf("%g: %s", v, got)
		}
	}
	for v, want := range map[float64]string{5000: "5,000", 20000: "20k", 1e6: "1M", 2.5e9: "2.5G"} {
		if got := short(v); got != want {
			t.Errorf("%g: %s", v, got)
		}
	}
}
