package report

import (
	"fmt"
	"strings"
)

// Table is a set of things that were measured in turn.
type Table struct {
	// Headings of the values, with their units.
	Metrics []string
	Rows    []Row
	Ratios  []Ratio
	// How it was measured, under the table.
	Note string
}

// Row is one of the things.
type Row struct {
	Name string
	// By metric, then by round.
	Samples [][]float64
}

// Ratio compares two rows.
type Ratio struct {
	Of, To string // names of rows
	Metric int
	Aim    Aim
}

// Aim is what a ratio, or a value itself if To is empty, should come to.
type Aim struct {
	Bound float64
	Most  bool // whether the bound is the most, not the least
}

// AtLeast and AtMost are aims.
func AtLeast(bound float64) Aim { return Aim{Bound: bound} }
func AtMost(bound float64) Aim  { return Aim{Bound: bound, Most: true} }

// Met reports whether a value is what was aimed at.
func (a Aim) Met(value float64) bool {
	if a.Most {
		return value <= a.Bound
	}
	return value >= a.Bound
}

func (a Aim) String() string {
	switch {
	case a == Aim{}:
		return ""
	case a.Most:
		return "≤ " + Number(a.Bound)
	default:
		return "≥ " + Number(a.Bound)
	}
}

// Find returns the row of a name.
func (t *Table) Find(name string) (Row, error) {
	for _, r := range t.Rows {
		if r.Name == name {
			return r, nil
		}
	}
	return Row{}, fmt.Errorf("no row %q", name)
}

// Summary returns what a ratio came to.
func (t *Table) Summary(r Ratio) (Summary, error) {
	of, err := t.Find(r.Of)
	if err != nil {
		return Summary{}, err
	}
	if r.To == "" {
		return Summarize(of.Samples[r.Metric]), nil
	}
	to, err := t.Find(r.To)
	if err != nil {
		return Summary{}, err
	}
	return Summarize(Divide(of.Samples[r.Metric], to.Samples[r.Metric])), nil
}

// Markdown writes the rows, the ratios and the note.
func (t *Table) Markdown() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "| |%s\n|---|%s\n", cells(t.Metrics), strings.Repeat("---|", len(t.Metrics)))
	for _, r := range t.Rows {
		values := make([]string, len(r.Samples))
		for i, samples := range r.Samples {
			values[i] = Summarize(samples).String()
		}
		fmt.Fprintf(&b, "| %s |%s\n", r.Name, cells(values))
	}
	if len(t.Ratios) > 0 {
		fmt.Fprint(&b, "\n| compared | | aim | |\n|---|---|---|---|\n")
	}
	for _, r := range t.Ratios {
		s, err := t.Summary(r)
		if err != nil {
			return "", err
		}
		name := r.Of
		if r.To != "" {
			name += " ÷ " + r.To
		}
		if len(t.Metrics) > 1 {
			name += ": " + t.Metrics[r.Metric]
		}
		met := ""
		switch {
		case r.Aim == Aim{}:
		case r.Aim.Met(s.Median):
			met = "met"
		default:
			met = "missed"
		}
		fmt.Fprintf(&b, "| %s |%s\n", name, cells([]string{s.String(), r.Aim.String(), met}))
	}
	if t.Note != "" {
		fmt.Fprintf(&b, "\n%s\n", t.Note)
	}
	return b.String(), nil
}

func cells(texts []string) string { return " " + strings.Join(texts, " | ") + " |" }
