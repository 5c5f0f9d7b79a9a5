package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/bench/chart"
	"github.com/slidingwindow/caddy-sliding-window/bench/report"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/traffic"
)

func plotAll(dir string, results map[string]map[string]traffic.Accuracy, all map[string]*costs) error {
	if err := shapes("Worst overshoot of a trailing window", "% of the limit, by the shape of the traffic", results, traffic.Accuracy.Overshoot).
		Draw(filepath.Join(dir, "overshoot.svg")); err != nil {
		return err
	}
	if err := shapes("Wrongly denied", "% of requests, by the shape of the traffic", results, traffic.Accuracy.WronglyDeniedShare).
		Draw(filepath.Join(dir, "denied.svg")); err != nil {
		return err
	}
	if err := bySize("Memory in Redis", "bytes per key", func(name string, i int) float64 {
		return float64(all[name].redisBytes[i])
	}).Draw(filepath.Join(dir, "bytes.svg")); err != nil {
		return err
	}
	return bySize("Cost of a decision in Redis", "µs of the server", func(name string, i int) float64 {
		return all[name].redisMicros[i]
	}).Draw(filepath.Join(dir, "decision.svg"))
}

// shapes is a column of bars per shape, one bar per algorithm; algorithms that do the
// same share a row.
func shapes(title, unit string, results map[string]map[string]traffic.Accuracy, value func(traffic.Accuracy) float64) chart.Bars {
	b := chart.Bars{Title: title, About: unit, Shared: true}
	rows := make([]chart.Row, len(variants))
	for i, v := range variants {
		rows[i].Name = v.name
		for _, s := range traffic.Shapes {
			x := value(results[s.Name][v.name])
			rows[i].Cells = append(rows[i].Cells, chart.Cell{Value: x, Low: x, High: x})
		}
	}
	b.Rows = chart.Group(rows)
	for _, s := range traffic.Shapes {
		b.Columns = append(b.Columns, s.Name)
	}
	return b
}

// bySize is a line per algorithm over the number of units in the window.
func bySize(title, unit string, value func(name string, i int) float64) chart.Lines {
	l := chart.Lines{
		Title: title, About: fmt.Sprintf("%s; algorithms within a factor of %g of the first share its line", unit, chart.Near),
		XLabel: "units in the window", Log: true,
	}
	for _, n := range sizes {
		l.X = append(l.X, float64(n))
	}
	for _, v := range variants {
		s := chart.Series{Name: v.name}
		for i := range sizes {
			s.Values = append(s.Values, value(v.name, i))
		}
		l.Series = append(l.Series, s)
	}
	return l
}

// costsIn returns what a document says that algorithms cost in Redis, in the tables
// that printCosts printed.
func costsIn(document string) (map[string]*costs, error) {
	all := make(map[string]*costs)
	found := 0
	for _, table := range report.Tables(document) {
		if len(table[0]) <= len(sizes) || table[0][1] != fmt.Sprintf("n = %d", sizes[0]) {
			continue
		}
		found++
		for _, row := range table[1:] {
			name := strings.Trim(row[0], "`")
			if all[name] == nil {
				all[name] = new(costs)
			}
			for _, cell := range row[1 : len(sizes)+1] {
				inRedis, _, isBytes := strings.Cut(cell, ";")
				v, err := strconv.ParseFloat(inRedis, 64)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				if isBytes {
					all[name].redisBytes = append(all[name].redisBytes, int64(v))
				} else {
					all[name].redisMicros = append(all[name].redisMicros, v)
				}
			}
		}
	}
	if found != 2 {
		return nil, fmt.Errorf("%d tables of costs, want 2", found)
	}
	for _, v := range variants {
		if c := all[v.name]; c == nil || len(c.redisBytes) != len(sizes) || len(c.redisMicros) != len(sizes) {
			return nil, fmt.Errorf("the tables of costs lack %s", v.name)
		}
	}
	return all, nil
}
