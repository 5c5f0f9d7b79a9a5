package chart

import (
	"math"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// Bars are rows of bars: a name at the left of each row, and a bar in each column.
type Bars struct {
	Title string
	// What the figures are, with their unit.
	About string
	// Columns are the headings; nil if there is one column.
	Columns []string
	Rows    []Row
	// Shared gives all columns one scale.
	Shared bool
}

// Row is a name and a bar for each column.
type Row struct {
	Name  string // may have several lines
	Cells []Cell
}

// Cell is a bar: a value, and the range that it was found in.
type Cell struct{ Value, Low, High float64 }

const (
	lineHeight = vg.Length(14) // of names
	rowGap     = vg.Length(9)
	barHeight  = vg.Length(12)
	axisHeight = vg.Length(18)
)

// Draw writes the picture.
func (b Bars) Draw(path string) error {
	return save(path, b.height(), func(c draw.Canvas) { b.paint(heading(c, b.Title, b.About)) })
}

func (b Bars) height() vg.Length {
	height := 2*margin + headingHeight + axisHeight
	if b.Columns != nil {
		height += lineHeight
	}
	for _, r := range b.Rows {
		height += r.height()
	}
	return height
}

func (r Row) height() vg.Length {
	return lineHeight*vg.Length(1+strings.Count(r.Name, "\n")) + rowGap
}

func (b Bars) paint(c draw.Canvas) {
	style := letters(10, ink)
	names := vg.Length(0)
	for _, r := range b.Rows {
		names = max(names, style.Width(r.Name))
	}
	n := 0
	for _, r := range b.Rows {
		n = max(n, len(r.Cells))
	}
	left := c.Min.X + names + 2*gap
	each := (c.Max.X - left) / vg.Length(n)
	for k := range n {
		area := c
		area.Min.X, area.Max.X = left+each*vg.Length(k), left+each*vg.Length(k+1)
		b.paintColumn(area, k)
	}
	y := b.top(c)
	for _, r := range b.Rows {
		c.FillText(style, vg.Point{X: c.Min.X, Y: y - r.height()/2 + 1}, r.Name)
		y -= r.height()
	}
}

// top returns where the first row begins.
func (b Bars) top(c draw.Canvas) vg.Length {
	if b.Columns == nil {
		return c.Max.Y
	}
	return c.Max.Y - lineHeight
}

func (b Bars) paintColumn(c draw.Canvas, k int) {
	style, fine := letters(10, ink), letters(9, ink)
	fine.XAlign = draw.XCenter
	if b.Columns != nil {
		c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y - lineHeight/2}, b.Columns[k])
	}
	values := vg.Length(0)
	for _, r := range b.Rows {
		values = max(values, style.Width(report.Number(r.Cells[k].Value)))
	}
	highest := b.highest(k)
	length := c.Max.X - c.Min.X - values - 3*gap
	at := func(v float64) vg.Length { return c.Min.X + length*vg.Length(v/highest) }
	top, bottom := b.top(c), c.Min.Y+axisHeight
	for _, tick := range ticks(highest, max(1, int(length/70))) {
		c.StrokeLine2(draw.LineStyle{Color: faint, Width: 1}, at(tick), bottom, at(tick), top)
		c.FillText(fine, vg.Point{X: at(tick), Y: bottom - axisHeight/2}, label(tick))
	}
	y := top
	for _, r := range b.Rows {
		middle := y - r.height()/2
		y -= r.height()
		cell := r.Cells[k]
		end := c.Min.X
		if !math.IsNaN(cell.Value) && !math.IsInf(cell.Value, 0) {
			end = at(cell.Value)
			area := vg.Rectangle{Min: vg.Point{X: c.Min.X, Y: middle - barHeight/2}, Max: vg.Point{X: end, Y: middle + barHeight/2}}
			c.SetColor(bar)
			c.Fill(area.Path())
			end = max(end, whisker(c, cell, at, middle))
		}
		c.FillText(style, vg.Point{X: end + gap, Y: middle + 1}, report.Number(cell.Value))
	}
}

// whisker draws the range of a cell, if it has one, and returns where it ends.
func whisker(c draw.Canvas, cell Cell, at func(float64) vg.Length, y vg.Length) vg.Length {
	low, high := at(cell.Low), at(cell.High)
	if !(high-low > 1) || math.IsInf(cell.High, 0) {
		return 0
	}
	line := draw.LineStyle{Color: ink, Width: 1}
	c.StrokeLine2(line, low, y, high, y)
	c.StrokeLine2(line, low, y-3, low, y+3)
	c.StrokeLine2(line, high, y-3, high, y+3)
	return high
}

// highest returns the end of the scale of a column, above 0.
func (b Bars) highest(k int) float64 {
	highest := 0.0
	for _, r := range b.Rows {
		for i, cell := range r.Cells {
			if i != k && !b.Shared {
				continue
			}
			for _, v := range []float64{cell.Value, cell.High} {
				if v > highest && !math.IsInf(v, 0) {
					highest = v
				}
			}
		}
	}
	if highest == 0 {
		return 1
	}
	return highest
}
