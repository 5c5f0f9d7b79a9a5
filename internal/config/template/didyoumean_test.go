package template

import (
	"slices"
	"strings"
	"testing"
)

// Caddy knows the names that are suggested in place of unknown ones. An older one knows six of them not yet.
func TestDocumentedNames(t *testing.T) {
	newer := []string{
		"http.request.proto_name", "http.request.uri_escaped", "http.request.uri.path_escaped", "http.request.uri.query_escaped",
		"http.request.orig_uri.path.file_escaped", "http.request.tls.ech",
	}
	older := !CaddyKnows(newer[0])
	for _, name := range documentedNames {
		if !slices.Contains(knownNames(), name) && !(older && slices.Contains(newer, name)) {
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
