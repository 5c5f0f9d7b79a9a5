package slidingwindow

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestAlgorithmWords fails for an algorithm of the engine that no word of a configuration builds, and
// for a word or an option that docs/algorithms.md or docs/caddyfile.md leaves out.
func TestAlgorithmWords(t *testing.T) {
	for _, f := range window.AllFacts() {
		if !slices.Contains(algorithmNames, f.Word) {
			t.Errorf("%s: %q is not among the words %s", f.Probe.Name(), f.Word, algorithmNames)
		}
	}
	algorithms, err := os.ReadFile("docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	caddyfile, err := os.ReadFile("docs/caddyfile.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range algorithmNames {
		if builders[name] == nil {
			t.Errorf("%s: nothing builds it", name)
		}
		if !strings.Contains(string(algorithms), "\n## "+name+"\n") {
			t.Errorf("%s: docs/algorithms.md has no section on it", name)
		}
	}
	for _, o := range algorithmOptions {
		if !strings.Contains(string(caddyfile), o.name) {
			t.Errorf("%s: docs/caddyfile.md leaves the option out", o.name)
		}
	}
}
