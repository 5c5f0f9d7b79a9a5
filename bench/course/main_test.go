package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table of the document has both pictures drawn, with a line for each column.
func TestDraw(t *testing.T) {
	plots := t.TempDir()
	if err := run(filepath.Join("..", "RESULTS.md"), plots); err != nil {
		t.Fatal(err)
	}
	for file, names := range map[string][]string{
		"load-latency.svg": {"no limit", "best limit", "load, 1 s", "load, 10 s"}, "load-factor.svg": {"limit in 1 s", "limit in 10 s"},
	} {
		svg, err := os.ReadFile(filepath.Join(plots, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.Contains(string(svg), ">"+name+"<") {
				t.Errorf("%s has no line %q", file, name)
			}
		}
	}
}

// A document without the table, or with text in place of a figure, is an error.
func TestDrawFails(t *testing.T) {
	for _, text := range []string{"", "<!-- bench:course -->\n| second | a |\n|---|---|\n| 1 | 2 |\n<!-- /bench:course -->\n"} {
		document := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(document, t.TempDir()); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}
