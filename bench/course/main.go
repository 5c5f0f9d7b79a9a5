// Command course draws how a limit that follows the load, and others, let a back end answer in the course of time,
// from the table of bench/RESULTS.md. TestLoadBeforeABackEnd of the module prints the rows of the table.
//
//	go -C bench run ./course -document RESULTS.md -plots ../docs
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/slidingwindow/caddy-sliding-window/bench/chart"
	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// name is that of the table in the document.
const name = "course"

// latencies is how many columns are times. Factors follow.
const latencies = 4

func main() {
	document := flag.String("document", "", "Markdown file with the table")
	plots := flag.String("plots", "", "folder to write SVG plots to")
	flag.Parse()
	if err := run(*document, *plots); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(document, plots string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	table, err := report.Parse(string(text), name)
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	latency := chart.Lines{
		Title: "Time to answer what passes, p99", About: "seconds, of each ten seconds; the back end does 200 a second, and 400 come",
		XLabel: "seconds since the start", Even: true, Log: true,
	}
	factor := chart.Lines{
		Title: "Factor of the limit", About: "at the end of each ten seconds; 0.5 is what the back end can do",
		XLabel: "seconds since the start", Even: true,
	}
	if len(table.Metrics) <= latencies {
		return fmt.Errorf("%s: table %q has %d columns of figures, want times and factors", document, name, len(table.Metrics))
	}
	for i, metric := range table.Metrics {
		of := &latency
		if i >= latencies {
			of = &factor
		}
		of.Series = append(of.Series, chart.Series{Name: metric})
	}
	for _, row := range table.Rows {
		second, err := strconv.ParseFloat(row.Name, 64)
		if err != nil {
			return err
		}
		latency.X, factor.X = append(latency.X, second), append(factor.X, second)
		for i, samples := range row.Samples {
			series := &latency.Series
			if i >= latencies {
				series, i = &factor.Series, i-latencies
			}
			(*series)[i].Values = append((*series)[i].Values, report.Summarize(samples).Median)
		}
	}
	if err := latency.Draw(filepath.Join(plots, "load-latency.svg")); err != nil {
		return err
	}
	return factor.Draw(filepath.Join(plots, "load-factor.svg"))
}
