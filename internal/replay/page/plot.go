package page

import (
	"fmt"
	"math"
	"strings"
)

// Plot is a plot of bars or of lines. X is a time in seconds since 1970 if Time is set, else a number.
type Plot struct {
	Title string
	About string
	XName string
	YName string
	Time  bool
	LogX  bool
	LogY  bool // for counts: 0 has a place below 1
	Share bool // y is a share of 1, shown in percent
	Bars  []Bar
	Names [2]string // of Bar.Y and Bar.Part
	Lines []Line
	Marks []Mark
}

// Bar goes from X0 to X1, and is Y high; Part of it has another colour.
type Bar struct{ X0, X1, Y, Part float64 }

// Line is a line through points, in the order of x.
type Line struct {
	Name   string
	Points [][2]float64
}

// Mark is a vertical line with a text.
type Mark struct {
	X    float64
	Text string
}

// The picture is as wide as a phone's, and grows with the page.
const (
	width, height            = 520.0, 240.0
	left, right, top, bottom = 52.0, 14.0, 22.0, 40.0
	plotWidth, plotHeight    = width - left - right, height - top - bottom
	thinnest                 = 0.6 // of a bar
	mostTicks                = 6
	figuresMost              = 400 // rows of a table of figures
	below1                   = 0.5 // where 0 is on a logarithmic axis of counts
)

// drawing is a Plot in the coordinates of its picture.
type drawing struct {
	Title, About  string
	Label         string // for those who do not see it
	Bars          []rect
	Lines         []path
	Marks         []text
	XTicks        []text
	YTicks        []text
	XName, YName  string
	Legend        []key
	Head          []string
	Rows          [][]string
	Width, Height float64
	Base, Right   float64
}

type rect struct {
	X, Y, W, H   float64
	PartY, PartH float64
	Text         string
}

type path struct {
	Class  string
	D      string
	Points []text
}

type text struct {
	X, Y float64
	Text string
	End  bool // the text ends at X
}

type key struct{ Class, Text string }

// axis turns values into coordinates.
type axis struct {
	from, to float64
	log      bool
	start    float64 // coordinate of from
	length   float64 // negative: upwards
}

func (a *axis) at(v float64) float64 {
	from, to := a.from, a.to
	if a.log {
		v, from, to = math.Log(max(v, a.from)), math.Log(a.from), math.Log(a.to)
	}
	if to == from {
		return a.start
	}
	return math.Round((a.start+a.length*(v-from)/(to-from))*10) / 10
}

// draw returns the picture of p. It reports whether there is anything to see.
func (p *Plot) draw() (drawing, bool) {
	x, y, ok := p.axes()
	if !ok {
		return drawing{}, false
	}
	d := drawing{
		Title: p.Title, About: p.About, XName: p.XName, YName: p.YName, Width: width, Height: height, Base: height - bottom, Right: width - right,
		Label: p.Title + ". " + p.About,
	}
	p.drawBars(&d, x, y)
	p.drawLines(&d, x, y)
	for i, m := range p.Marks {
		at := x.at(m.X)
		if m.X < x.from || m.X > x.to {
			continue
		}
		d.Marks = append(d.Marks, text{X: at, Y: top - 8 + float64(i%2)*11, Text: m.Text, End: at > width*0.7})
	}
	d.XTicks = p.xTicks(x)
	for _, v := range p.yTicks(y) {
		d.YTicks = append(d.YTicks, text{X: left - 6, Y: y.at(v), Text: p.yText(v)})
	}
	return d, true
}

// axes returns the axes for all that p shows.
func (p *Plot) axes() (x, y *axis, ok bool) {
	x = &axis{from: math.Inf(1), to: math.Inf(-1), log: p.LogX, start: left, length: plotWidth}
	y = &axis{log: p.LogY, start: height - bottom, length: -plotHeight}
	if p.LogY {
		y.from = below1
	}
	for _, b := range p.Bars {
		x.from, x.to, y.to = min(x.from, b.X0), max(x.to, b.X1), max(y.to, b.Y)
	}
	for _, l := range p.Lines {
		for _, v := range l.Points {
			x.from, x.to, y.to = min(x.from, v[0]), max(x.to, v[0]), max(y.to, v[1])
		}
	}
	if x.from > x.to {
		return nil, nil, false
	}
	for _, m := range p.Marks {
		x.from, x.to = min(x.from, m.X), max(x.to, m.X)
	}
	if x.from == x.to {
		x.to = x.from + 1
	}
	switch {
	case p.Share:
		y.to = 1
	case y.to == 0:
		y.to = 1
	case p.LogY:
		y.to *= 1.5
	}
	return x, y, true
}

func (p *Plot) drawBars(d *drawing, x, y *axis) {
	if len(p.Bars) == 0 {
		return
	}
	d.Head = []string{p.XName, p.Names[0]}
	d.Legend = []key{{"all", p.Names[0]}}
	if p.Names[1] != "" {
		d.Head, d.Legend = append(d.Head, p.Names[1]), append(d.Legend, key{"part", p.Names[1]})
	}
	for _, b := range p.Bars {
		name := p.xText(b.X0)
		if !p.Time && b.X1 > b.X0+1 {
			name += " to " + p.xText(b.X1-1)
		}
		row := []string{name, p.yText(b.Y)}
		tip := name + ": " + p.Names[0] + " " + p.yText(b.Y)
		if p.Names[1] != "" {
			row, tip = append(row, p.yText(b.Part)), tip+", "+p.Names[1]+" "+p.yText(b.Part)
		}
		if b.Y > 0 && len(d.Rows) < figuresMost {
			d.Rows = append(d.Rows, row)
		}
		r := rect{X: x.at(b.X0), Y: y.at(b.Y), PartY: y.at(b.Part), Text: tip}
		r.W = max(math.Round((x.at(b.X1)-r.X)*9)/10, thinnest)
		r.H, r.PartH = round(d.Base-r.Y), round(d.Base-r.PartY)
		if b.Y <= 0 {
			r.H = 0
		}
		if b.Part <= 0 {
			r.PartH = 0
		} else {
			r.PartH = max(r.PartH, thinnest)
			r.PartY = d.Base - r.PartH
		}
		d.Bars = append(d.Bars, r)
	}
}

func round(v float64) float64 { return math.Round(v*10) / 10 }

func (p *Plot) drawLines(d *drawing, x, y *axis) {
	if len(p.Lines) == 0 {
		return
	}
	d.Head = []string{p.XName}
	for i, l := range p.Lines {
		v := path{Class: []string{"first", "second", "third"}[min(i, 2)]}
		d.Head, d.Legend = append(d.Head, l.Name), append(d.Legend, key{v.Class, l.Name})
		var b strings.Builder
		for j, at := range l.Points {
			px, py := x.at(at[0]), y.at(at[1])
			fmt.Fprintf(&b, "%c%g %g", "ML"[min(j, 1)], px, py)
			v.Points = append(v.Points, text{X: px, Y: py, Text: p.xText(at[0]) + ": " + l.Name + " " + p.yText(at[1])})
			if i == 0 && j < figuresMost {
				d.Rows = append(d.Rows, []string{p.xText(at[0])})
			}
			if j < len(d.Rows) {
				d.Rows[j] = append(d.Rows[j], p.yText(at[1]))
			}
		}
		v.D = b.String()
		d.Lines = append(d.Lines, v)
	}
}
