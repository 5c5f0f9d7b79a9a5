package main

import (
	"os"
	"strings"
	"testing"
)

// The document has what the plots of costs are drawn from.
func TestCostsInDocument(t *testing.T) {
	text, err := os.ReadFile("../RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := costsIn(string(text)); err != nil {
		t.Error(err)
	}
	for _, broken := range []string{"", strings.ReplaceAll(string(text), "`gcra`", "`gone`"), strings.ReplaceAll(string(text), "; 217 |", "x; 217 |")} {
		if _, err := costsIn(broken); err == nil {
			t.Errorf("a document of %d bytes without all costs is no error", len(broken))
		}
	}
}
