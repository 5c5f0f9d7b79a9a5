package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/bench/chart"
	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// draw plots the metrics of a table that t.drawn names, with the spread of the rounds.
func (t table) draw(path string, result *report.Table) error {
	if t.lines {
		return t.drawLine(path, result)
	}
	drawn := t.drawn
	if drawn == nil {
		drawn = []int{0}
	}
	b := chart.Bars{Title: t.title, About: t.caption(result.Metrics[drawn[0]]), Rows: make([]chart.Row, len(result.Rows))}
	if len(drawn) > 1 {
		b.About = t.caption("")
		for _, metric := range drawn {
			b.Columns = append(b.Columns, result.Metrics[metric])
		}
	}
	for i, row := range result.Rows {
		b.Rows[i].Name = strings.ReplaceAll(row.Name, "`", "")
		for _, metric := range drawn {
			s := report.Summarize(row.Samples[metric])
			b.Rows[i].Cells = append(b.Rows[i].Cells, chart.Cell{Value: s.Median, Low: s.Min, High: s.Max})
		}
	}
	return b.Draw(path)
}

// caption says what figures of a metric are.
func (t table) caption(metric string) string {
	about := "the median of the rounds; the line is from the least to the most"
	if t.once {
		about = "measured once"
	}
	if metric == "" {
		return about
	}
	return fmt.Sprintf("%s: %s", metric, about)
}

// drawLine draws the first metric over the names of the rows, which are numbers.
func (t table) drawLine(path string, result *report.Table) error {
	l := chart.Lines{
		Title: t.title, About: result.Metrics[0] + ": the median of the rounds", XLabel: "keys",
		Series: []chart.Series{{}},
	}
	for _, row := range result.Rows {
		x, err := strconv.ParseFloat(strings.ReplaceAll(row.Name, ",", ""), 64)
		if err != nil {
			return err
		}
		l.X = append(l.X, x)
		l.Series[0].Values = append(l.Series[0].Values, report.Summarize(row.Samples[0]).Median)
	}
	return l.Draw(path)
}
