package template

import (
	"strings"
	"testing"
)

// What is suggested in place of an unknown name is known.
func TestDocumentedNames(t *testing.T) {
	for _, name := range documentedNames {
		if strings.HasSuffix(name, ".") {
			name += "0"
		}
		if !CaddyKnows(name) {
			t.Errorf("Caddy does not know {%s}", name)
		}
	}
}

// Names of any length and kind make no trouble.
func TestMeantByAnything(t *testing.T) {
	for _, name := range []string{
		"", ".", "..", "http.", "http.request..", "http.request.header.", "http.vars.", "\x00", "é", "ü.ü",
		strings.Repeat(".", 300), strings.Repeat("a.", 100), strings.Repeat("a", 1<<20), "http.request." + strings.Repeat("a.", 1<<20),
	} {
		if meant := MeantBy(name); meant != "" {
			t.Errorf("%.20q is taken for %q", name, meant)
		}
		if err := CheckKnown(name); (err == nil) == (strings.HasPrefix(name, RequestNames) && name != "http.request.header.") {
			t.Errorf("%.20q: got %v", name, err)
		}
	}
}
