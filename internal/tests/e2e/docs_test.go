package e2e_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	var pages []string
	eachFile(t, func(path, text string) {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
	})
	if len(pages) < 25 {
		t.Errorf("only the documents %q", pages)
	}
	for _, document := range pages {
		for _, m := range regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]+))?\)`).FindAllStringSubmatch(readFile(t, document), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := document
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(document), m[1])
			}
			leads(t, document, target, m[2])
		}
	}
}

// Documents that comments, errors and settings name are there.
func TestNamedDocuments(t *testing.T) {
	named := 0
	eachFile(t, func(path, text string) {
		for _, m := range regexp.MustCompile(`\b((?:docs|bench)/[A-Za-z-]+\.(?:md|ya?ml|json))(?:#([a-z-]+))?`).FindAllStringSubmatch(text, -1) {
			if target := m[1]; !strings.Contains(path, "bench/") || strings.HasPrefix(target, "docs/") {
				named++
				leads(t, path, target, m[2])
			}
		}
	})
	if named < 100 {
		t.Errorf("only %d documents are named", named)
	}
}

// leads holds that a file is there, and that it has a heading.
func leads(t *testing.T, from, target, heading string) {
	t.Helper()
	if _, err := os.Stat(target); err != nil {
		t.Errorf("%s points to a file that is not there: %v", from, err)
	} else if heading != "" && filepath.Ext(target) == ".md" && !anchorsOf(readFile(t, target))[heading] {
		t.Errorf("%s points to %s#%s, and there is no such heading", from, target, heading)
	}
}

// eachFile calls a function with the files of the repository in which texts are.
func eachFile(t *testing.T, do func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules" || entry.Name() == "dist"):
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".md", ".go", ".lua", ".yml", ".yaml", ".sh", ""}, filepath.Ext(path)):
			if text := readFile(t, path); !strings.Contains(text, "\x00") { // a program, as of make build
				do(path, text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
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
	const most = 5421
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
