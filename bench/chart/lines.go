package chart

import (
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// Lines are lines over an axis that is logarithmic unless Even is set, each with its name at the end.
type Lines struct {
	Title string
	// What the figures are, with their unit.
	About string
	// XLabel names the horizontal axis, and X has its values, ascending.
	XLabel string
	X      []float64
	// Series within a factor of Near are drawn as one if Log is set.
	Series []Series
	// Log makes the vertical axis logarithmic; else it begins at 0.
	Log bool
	// Even makes equal steps of X equally long.
	Even bool
}

// Series is a value for each X.
type Series struct {
	Name   string // may have several lines; empty: the values are written in its place
	Values []float64
}

const linesHeight = vg.Length(4.6) * vg.Inch

// Near is the factor up to which series of a logarithmic axis share a line.
const Near = 1.6

// Draw writes the picture.
func (l Lines) Draw(path string) error {
	series := l.Series
	if l.Log {
		series = merge(series)
	}
	p, err := l.plot(series)
	if err != nil {
		return err
	}
	return save(path, linesHeight, func(c draw.Canvas) { paint(heading(c, l.Title, l.About), p, series) })
}

// paint draws the plot, and the names of the series at its right.
func paint(c draw.Canvas, p *plot.Plot, series []Series) {
	style := letters(10, ink)
	room := vg.Length(0)
	for _, s := range series {
		room = max(room, style.Width(s.Name))
	}
	c = draw.Crop(c, 0, -(room + 2*gap), 0, 0)
	p.Draw(c)
	data := p.DataCanvas(c)
	_, y := p.Transforms(&data)
	labels := make([]span, len(series))
	for i, s := range series {
		labels[i] = span{float64(y(s.Values[len(s.Values)-1])), float64(lineHeight) * float64(1+strings.Count(s.Name, "\n"))}
	}
	for i, at := range spread(labels, float64(c.Min.Y), float64(c.Max.Y)) {
		style.Color = colors[i%len(colors)]
		c.FillText(style, vg.Point{X: data.Max.X + 2*gap, Y: vg.Length(at)}, series[i].Name)
	}
}

func (l Lines) plot(series []Series) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Tick.Marker = plot.ConstantTicks(named(l.X))
	if !l.Even {
		p.X.Scale = plot.LogScale{}
	}
	p.X.Label.Text, p.X.Label.TextStyle = l.XLabel, letters(10, ink)
	p.X.Label.TextStyle.XAlign, p.X.Label.TextStyle.YAlign = draw.XCenter, draw.YBottom
	p.X.Label.Padding = gap
	l.scale(p, series)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = faint, faint
		axis.Tick.Label.Font, axis.Tick.Label.Color = letters(9, ink).Font, ink
		axis.Padding = gap
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = faint, faint
	p.Add(grid)
	for i, s := range series {
		points := make(plotter.XYs, len(l.X))
		for k, x := range l.X {
			points[k] = plotter.XY{X: x, Y: s.Values[k]}
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		c := colors[i%len(colors)]
		line.Color, line.Width = c, 2
		marks.Color, marks.Shape, marks.Radius = c, plotutil.Shape(i), 3.5
		p.Add(line, marks)
		if s.Name == "" {
			values, err := valuesOf(points)
			if err != nil {
				return nil, err
			}
			p.Add(values)
		}
	}
	return p, nil
}

// valuesOf returns the values of points, to be written above them.
func valuesOf(points plotter.XYs) (*plotter.Labels, error) {
	texts := make([]string, len(points))
	for i, point := range points {
		texts[i] = report.Number(point.Y)
	}
	values, err := plotter.NewLabels(plotter.XYLabels{XYs: points, Labels: texts})
	if err != nil {
		return nil, err
	}
	for i := range values.TextStyle {
		values.TextStyle[i] = letters(10, ink)
		values.TextStyle[i].XAlign, values.TextStyle[i].YAlign = draw.XCenter, draw.YBottom
	}
	values.Offset.Y = gap
	return values, nil
}

// scale sets the vertical axis.
func (l Lines) scale(p *plot.Plot, series []Series) {
	low, high := bounds(series)
	if !l.Log {
		high *= 1.1 // room for values above the points
		p.Y.Min, p.Y.Max = 0, high
		p.Y.Tick.Marker = plot.ConstantTicks(named(ticks(high, 5)))
		return
	}
	p.Y.Scale, p.Y.Min, p.Y.Max = plot.LogScale{}, roundDown(low), roundUp(high)
	p.Y.Tick.Marker = plot.ConstantTicks(named(decades(p.Y.Min, p.Y.Max)))
}

// decades returns powers of ten from low to high, and 2 and 5 times them if that
// makes fewer than ten.
func decades(low, high float64) []float64 {
	steps := []float64{1, 2, 5}
	if high/low > 1e3 {
		steps = steps[:1]
	}
	var all []float64
	for e := math.Floor(math.Log10(low)); math.Pow(10, e) <= high*(1+1e-9); e++ {
		for _, m := range steps {
			if v := m * math.Pow(10, e); v >= low*(1-1e-9) && v <= high*(1+1e-9) {
				all = append(all, v)
			}
		}
	}
	return all
}

func named(values []float64) []plot.Tick {
	all := make([]plot.Tick, len(values))
	for i, v := range values {
		all[i] = plot.Tick{Value: v, Label: label(v)}
	}
	return all
}

func bounds(series []Series) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, s := range series {
		low, high = min(low, slices.Min(s.Values)), max(high, slices.Max(s.Values))
	}
	return low, high
}

// merge joins series that are within the factor Near of the first of them at each point.
func merge(series []Series) []Series {
	var merged []Series
next:
	for _, s := range series {
		for i, m := range merged {
			if !slices.ContainsFunc(indexes(s.Values), func(k int) bool { return math.Abs(math.Log(s.Values[k]/m.Values[k])) > math.Log(Near) }) {
				merged[i].Name += "\n" + s.Name
				continue next
			}
		}
		merged = append(merged, s)
	}
	return merged
}

func indexes(values []float64) []int {
	all := make([]int, len(values))
	for i := range all {
		all[i] = i
	}
	return all
}

// span is a text: where its middle should be, and its height.
type span struct{ at, height float64 }

// spread returns where the middles of texts go so that no two overlap: near to where
// they should be, between low and high if there is room.
func spread(spans []span, low, high float64) []float64 {
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case spans[a].at < spans[b].at:
			return -1
		case spans[a].at > spans[b].at:
			return 1
		}
		return b - a // the first series at the top
	})
	at := make([]float64, len(spans))
	floor := low
	for _, i := range order {
		at[i] = max(spans[i].at, floor+spans[i].height/2)
		floor = at[i] + spans[i].height/2
	}
	ceiling := high
	for _, i := range slices.Backward(order) {
		at[i] = min(at[i], ceiling-spans[i].height/2)
		ceiling = at[i] - spans[i].height/2
	}
	return at
}
