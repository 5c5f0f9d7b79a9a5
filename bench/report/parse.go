package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Parse returns the rows of the table that a document has between the markers of a
// name, with the median and the extremes in place of the samples. It leaves out
// ratios and the note.
func Parse(document, name string) (*Table, error) {
	_, rest, _ := strings.Cut(document, "<!-- bench:"+name+" -->\n")
	text, _, found := strings.Cut(rest, "<!-- /bench:"+name+" -->\n")
	if !found {
		return nil, fmt.Errorf("the document has no table %q", name)
	}
	tables := Tables(text)
	if len(tables) == 0 {
		return nil, fmt.Errorf("nothing was measured for table %q", name)
	}
	lines := tables[0]
	t := &Table{Metrics: lines[0][1:]}
	for _, cells := range lines[1:] {
		row := Row{Name: cells[0], Samples: make([][]float64, len(cells)-1)}
		for i, cell := range cells[1:] {
			var err error
			if row.Samples[i], err = samples(cell); err != nil {
				return nil, fmt.Errorf("table %q: %s: %w", name, row.Name, err)
			}
		}
		if len(row.Samples) != len(t.Metrics) {
			return nil, fmt.Errorf("table %q: %s: %d values, want %d", name, row.Name, len(row.Samples), len(t.Metrics))
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// samples returns what Summary.String wrote: the least, the median and the most, or
// the median alone.
func samples(cell string) ([]float64, error) {
	median, extremes, spread := strings.Cut(strings.TrimSuffix(cell, ")"), " (")
	texts := []string{median}
	if spread {
		low, high, _ := strings.Cut(extremes, " – ")
		texts = []string{low, median, high}
	}
	values := make([]float64, len(texts))
	for i, text := range texts {
		if text == "–" {
			values[i] = math.Inf(1)
			continue
		}
		var err error
		if values[i], err = strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// Tables returns the cells of each table in Markdown, by line, without the lines that
// divide headings from the rest.
func Tables(document string) [][][]string {
	var tables [][][]string
	within := false
	for line := range strings.Lines(document) {
		line, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
		switch {
		case !isRow:
		case strings.HasPrefix(line, "---"):
		case !within:
			tables = append(tables, [][]string{cellsOf(line)})
		default:
			last := len(tables) - 1
			tables[last] = append(tables[last], cellsOf(line))
		}
		within = isRow
	}
	return tables
}

func cellsOf(line string) []string {
	cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(cell)
	}
	return slices.Clip(cells)
}
