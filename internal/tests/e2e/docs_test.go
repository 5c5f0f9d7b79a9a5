package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// documents are the README and all pages in docs.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 7 {
		t.Fatalf("only %q in docs, %v", pages, err)
	}
	return append(pages, "README.md")
}

// blocksOf returns the fenced blocks of a text in a language.
func blocksOf(text, language string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// sectionOf returns what a document says below a heading, up to the next of its level
// or a higher one.
func sectionOf(t testing.TB, document, heading string) string {
	t.Helper()
	text := readFile(t, document)
	m := regexp.MustCompile(`(?m)^(##+) ` + regexp.QuoteMeta(heading) + `$`).FindStringSubmatchIndex(text)
	if m == nil {
		t.Fatalf("%s has no heading %q", document, heading)
	}
	level, rest := m[3]-m[2], text[m[1]:]
	if end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{2,%d} `, level)).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// blockBelow returns the n-th Caddyfile, from 1 on, below a heading of a document.
func blockBelow(t testing.TB, document, heading string, n int) string {
	t.Helper()
	blocks := blocksOf(sectionOf(t, document, heading), "caddyfile")
	if len(blocks) < n {
		t.Fatalf("%s has %d Caddyfiles below %q, want %d", document, len(blocks), heading, n)
	}
	return blocks[n-1]
}

// shellBelow returns the only commands below a heading of a document.
func shellBelow(t testing.TB, document, heading string) string {
	t.Helper()
	blocks := blocksOf(sectionOf(t, document, heading), "sh")
	if len(blocks) != 1 {
		t.Fatalf("%s has %d blocks of commands below %q, want 1", document, len(blocks), heading)
	}
	return blocks[0]
}

// Every Caddyfile in the documents is one, and loads.
func TestDocumentedCaddyfiles(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "secret")
	t.Setenv("REDIS_HASH_KEYS", "a secret of 16 bytes or more")
	certificates := writeCertificates(t)
	secrets := secretsOf(t, map[string]string{"redis": "secret", "sentinel": "secret"})
	for _, document := range documents(t) {
		for i, block := range blocksOf(readFile(t, document), "caddyfile") {
			t.Run(fmt.Sprint(document, " ", i+1), func(t *testing.T) {
				log := warned(t, checkCaddyfile(t, block, certificates, "/run/secrets", secrets))
				if document != lintPage { // which has mistakes
					wantWarnings(t, log)
				}
			})
		}
	}
}

// Every JSON in the documents loads: a handler, or a whole configuration.
func TestDocumentedJSON(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "secret")
	t.Setenv("REDIS_HASH_KEYS", "a secret of 16 bytes or more")
	certificates := writeCertificates(t)
	for _, document := range documents(t) {
		for i, block := range blocksOf(readFile(t, document), "json") {
			t.Run(fmt.Sprint(document, " ", i+1), func(t *testing.T) {
				config := []byte(block)
				if strings.Contains(block, `"handler"`) {
					config = handlerConfig(t, block)
				}
				config = bytes.ReplaceAll(config, []byte("/etc/caddy/redis"), []byte(certificates))
				if err := validate(t, caddy.RemoveMetaFields(config)); err != nil {
					t.Errorf("%v\n%s", err, block)
				}
			})
		}
	}
}

// Files and headings that documents point to are there.
func TestDocumentedLinks(t *testing.T) {
	inside := []string{"CONTRIBUTING.md", "SECURITY.md", "bench/RESULTS.md", "internal/tests/README.md", "internal/tests/soak/REPORT.md"}
	for _, document := range append(documents(t), inside...) {
		for _, m := range regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]+))?\)`).FindAllStringSubmatch(readFile(t, document), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := document
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(document), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s points to a file that is not there: %v", document, err)
				continue
			}
			if m[2] != "" && !anchorsOf(readFile(t, target))[m[2]] {
				t.Errorf("%s points to %s#%s, and there is no such heading", document, target, m[2])
			}
		}
	}
}

// anchorsOf returns the names by which links reach the headings of a document.
func anchorsOf(text string) map[string]bool {
	anchors := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors[strings.ReplaceAll(name, " ", "-")] = true
	}
	return anchors
}

// docs/performance.md has no ratio that bench/RESULTS.md does not have in the table that it names.
func TestDocumentedRatios(t *testing.T) {
	results := readFile(t, "bench/RESULTS.md")
	rows := regexp.MustCompile("(?m)^\\| ([^|]+) \\| ([0-9.]+) \\| `(\\w+)` \\|$").FindAllStringSubmatch(readFile(t, "docs/performance.md"), -1)
	if len(rows) < 12 {
		t.Errorf("docs/performance.md has %d ratios, want 12 or more", len(rows))
	}
	for _, row := range rows {
		_, table, _ := strings.Cut(results, "<!-- bench:"+row[3]+" -->\n")
		table, _, _ = strings.Cut(table, "<!-- /bench:"+row[3]+" -->\n")
		what, _, _ := strings.Cut(strings.ReplaceAll(row[1], " keys", ""), ", on one key")
		what, _, _ = strings.Cut(what, ", all denied")
		what, _, _ = strings.Cut(what, ", decisions per second")
		what, _, _ = strings.Cut(what, ", bytes per key")
		if !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(what) + `(:[^|]*)? \| ` + regexp.QuoteMeta(row[2]) + `( \(.*)? \|`).MatchString(table) {
			t.Errorf("table %s of bench/RESULTS.md has no ratio %s of %q", row[3], row[2], what)
		}
	}
}

// All pages together stay readable.
func TestDocumentsAreShort(t *testing.T) {
	const most = 4499
	lines := 0
	for _, document := range documents(t) {
		if document != "README.md" {
			lines += strings.Count(readFile(t, document), "\n")
		}
	}
	if lines > most {
		t.Errorf("docs/*.md have %d lines, want %d at most", lines, most)
	}
}
