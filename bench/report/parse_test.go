package report

import (
	"math"
	"testing"
)

// A table that is read back from a document says the same as the table that was written.
func TestParse(t *testing.T) {
	table := Table{
		Metrics: []string{"decisions/s", "µs"},
		Rows: []Row{
			{"ours, `zset`", [][]float64{{200_000, 100_000, 330_000}, {3, 3, 3}}},
			{"theirs", [][]float64{{100, 50, math.Inf(1)}, {math.Inf(1)}}},
		},
		Ratios: []Ratio{{Of: "ours, `zset`", To: "theirs"}},
		Note:   "3 rounds.",
	}
	written, err := table.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	document := "a\n<!-- bench:x -->\n" + written + "<!-- /bench:x -->\nb\n<!-- bench:y -->\n<!-- /bench:y -->\n"
	parsed, err := Parse(document, "x")
	if err != nil {
		t.Fatal(err)
	}
	parsed.Ratios, parsed.Note = nil, ""
	table.Ratios, table.Note = nil, ""
	want, err := table.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parsed.Markdown(); err != nil || got != want {
		t.Errorf("got\n%s\nerror %v, want\n%s", got, err, want)
	}
	for _, name := range []string{"y", "z"} {
		if _, err := Parse(document, name); err == nil {
			t.Errorf("table %q is no error", name)
		}
	}
	for _, row := range []string{"| a | x |", "| a | 1 | 2 |", "| a |"} {
		if _, err := Parse("<!-- bench:x -->\n| | n |\n|---|---|\n"+row+"\n<!-- /bench:x -->\n", "x"); err == nil {
			t.Errorf("%q is no error", row)
		}
	}
}
