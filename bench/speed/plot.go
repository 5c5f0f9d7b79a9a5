package main

import (
	"image/color"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// draw plots the first metric of a table, with the spread of the rounds.
func (t table) draw(path string, result *report.Table) error {
	p := plot.New()
	p.Title.Text, p.Title.Padding = t.title, vg.Points(6)
	var err error
	if t.lines {
		err = drawLine(p, result)
	} else {
		err = drawBars(p, result)
	}
	if err != nil {
		return err
	}
	height := vg.Length(1+0.35*float64(len(result.Rows))) * vg.Inch
	if t.lines {
		height = 4 * vg.Inch
	}
	return p.Save(9*vg.Inch, height, path)
}

// drawBars draws a bar for each row, the first at the top.
func drawBars(p *plot.Plot, result *report.Table) error {
	n := len(result.Rows)
	values, names := make(plotter.Values, n), make([]string, n)
	spread := spread{XYs: make(plotter.XYs, n), errors: make(plotter.XErrors, n)}
	for i, row := range result.Rows {
		s, at := report.Summarize(row.Samples[0]), n-1-i
		values[at], names[at] = s.Median, strings.ReplaceAll(row.Name, "`", "")
		spread.XYs[at] = plotter.XY{X: s.Median, Y: float64(at)}
		spread.errors[at].Low, spread.errors[at].High = s.Min-s.Median, s.Max-s.Median
	}
	bars, err := plotter.NewBarChart(values, vg.Points(14))
	if err != nil {
		return err
	}
	bars.Horizontal, bars.Color, bars.LineStyle.Width = true, plotutil.Color(2), 0
	whiskers, err := plotter.NewXErrorBars(spread)
	if err != nil {
		return err
	}
	whiskers.Color = color.Gray{Y: 64}
	p.Add(bars, whiskers)
	p.NominalY(names...)
	p.X.Min, p.X.Label.Text = 0, result.Metrics[0]
	p.Y.Label.Text = " " // makes room for long names
	return nil
}

// spread is what error bars are drawn from.
type spread struct {
	plotter.XYs
	errors plotter.XErrors
}

func (s spread) XError(i int) (low, high float64) { return s.errors.XError(i) }

// drawLine draws the first metric over the names of the rows, which are numbers.
func drawLine(p *plot.Plot, result *report.Table) error {
	points := make(plotter.XYs, len(result.Rows))
	for i, row := range result.Rows {
		x, err := strconv.ParseFloat(strings.ReplaceAll(row.Name, ",", ""), 64)
		if err != nil {
			return err
		}
		points[i] = plotter.XY{X: x, Y: report.Summarize(row.Samples[0]).Median}
	}
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, marks.Color, marks.Shape = plotutil.Color(2), plotutil.Color(2), plotutil.Shape(0)
	p.Add(line, marks)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "keys", result.Metrics[0], 0
	return nil
}
