package usage_test

import (
	"go/build"
	"strings"
	"testing"
)

// The package reads bytes, and knows neither Caddy nor the rest of this module.
func TestImports(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range p.Imports {
		if strings.HasPrefix(name, "github.com/caddyserver") || strings.HasPrefix(name, "github.com/slidingwindow") {
			t.Errorf("it imports %s", name)
		}
	}
}
