package main

import (
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/slidingwindow/caddy-sliding-window/internal/traffic"
)

const (
	plotWidth  = 9 * vg.Inch
	plotHeight = 4.5 * vg.Inch
)

// colors are one for each algorithm.
var colors = slices.Concat(plotutil.SoftColors, plotutil.DarkColors)

func plotAll(dir string, results map[string]map[string]traffic.Accuracy, all map[string]*costs) error {
	if err := plotShapes(filepath.Join(dir, "overshoot.svg"), "Worst overshoot of a trailing window", "% of the limit", results, traffic.Accuracy.Overshoot); err != nil {
		return err
	}
	if err := plotShapes(filepath.Join(dir, "denied.svg"), "Wrongly denied", "% of requests", results, traffic.Accuracy.WronglyDeniedShare); err != nil {
		return err
	}
	if err := plotSizes(filepath.Join(dir, "bytes.svg"), "Memory in Redis", "bytes per key", func(name string, i int) float64 {
		return float64(all[name].redisBytes[i])
	}); err != nil {
		return err
	}
	return plotSizes(filepath.Join(dir, "decision.svg"), "Cost of a decision in Redis", "µs", func(name string, i int) float64 {
		return all[name].redisMicros[i]
	})
}

// plotShapes draws a group of bars per shape, one bar per algorithm.
func plotShapes(path, title, unit string, results map[string]map[string]traffic.Accuracy, value func(traffic.Accuracy) float64) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, unit
	p.Y.Min = 0
	width := vg.Points(60 / float64(len(variants)))
	names := make([]string, len(traffic.Shapes))
	for i, v := range variants {
		values := make(plotter.Values, len(traffic.Shapes))
		for k, s := range traffic.Shapes {
			values[k], names[k] = value(results[s.Name][v.name]), s.Name
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = colors[i], 0
		bars.Offset = width * vg.Length(float64(i)-float64(len(variants)-1)/2)
		p.Add(bars)
		p.Legend.Add(v.name, bars)
	}
	p.Legend.Top = true
	p.NominalX(names...)
	return p.Save(plotWidth, plotHeight, path)
}

// plotSizes draws a line per algorithm over the number of units in the window.
func plotSizes(path, title, unit string, value func(name string, i int) float64) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "units in the window", unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	for i, v := range variants {
		points := make(plotter.XYs, len(sizes))
		for k, n := range sizes {
			points[k] = plotter.XY{X: float64(n), Y: value(v.name, k)}
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, marks.Color, marks.Shape = colors[i], colors[i], plotutil.Shape(i)
		p.Add(line, marks)
		p.Legend.Add(v.name, line, marks)
	}
	p.Legend.Top, p.Legend.Left = true, true
	return p.Save(plotWidth, plotHeight, path)
}
