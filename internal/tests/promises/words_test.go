package promises

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestCaddyfileWords holds the words of the Caddyfile, of which the comments of the parsers have the syntax. The Caddyfiles of
// former versions in testdata use each of them.
func TestCaddyfileWords(t *testing.T) {
	var got []string
	for place, block := range map[string]string{
		"global": syntaxIn(t, "caddyfile.go", "*App"), "site": syntaxIn(t, "caddyfile.go", "*Handler"),
		"store": syntaxIn(t, "stores/rediscaddyfile.go", "*Redis"), "store ": syntaxIn(t, "stores/memory.go", "*Memory"),
	} {
		for _, line := range wordsOf(block) {
			got = append(got, strings.TrimSpace(place)+": "+line)
		}
	}
	hold(t, "caddyfile", got)

	var all []string
	for _, file := range formerCaddyfiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Fields(string(text))...)
	}
	value := regexp.MustCompile(`<[^>]*>`)
	_, promised := read(t, lists+"caddyfile.txt")
	for _, line := range promised {
		for _, word := range regexp.MustCompile(`[a-z_0-9]+`).FindAllString(value.ReplaceAllString(line[strings.Index(line, ": ")+2:], ""), -1) {
			if !slices.Contains(all, word) {
				t.Errorf("no Caddyfile of a former version has %s, of %q: write it into the newest one in %s", word, line, lists)
			}
		}
	}
}

// syntaxIn returns the syntax in the comment of a parser, without the remarks.
func syntaxIn(t *testing.T, file, receiver string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(text), " "+receiver+") UnmarshalCaddyfile(")
	if !ok {
		t.Fatalf("%s has no UnmarshalCaddyfile of %s", file, receiver)
	}
	_, comment, ok := strings.Cut(before[max(0, strings.LastIndex(before, "\n}")):], "Syntax:\n//\n")
	if !ok {
		t.Fatalf("%s: the comment of UnmarshalCaddyfile of %s has no syntax", file, receiver)
	}
	var lines []string
	for line := range strings.Lines(comment) {
		if line, ok := strings.CutPrefix(line, "//\t"); ok {
			line, _, _ = strings.Cut(line, " # ")
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// wordsOf returns a line for each option in a syntax, below those whose blocks it is in, and for each word that it can have.
func wordsOf(syntax string) (lines []string) {
	var blocks []string
	for line := range strings.Lines(syntax) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case line == "}":
			blocks = blocks[:len(blocks)-1]
			continue
		}
		line, opens := strings.CutSuffix(line, "{")
		words := strings.Fields(line)
		for _, variant := range variants(words) {
			lines = append(lines, strings.Join(append(slices.Clone(blocks), variant), " > "))
		}
		if opens {
			block := words[0]
			if len(words) == 2 && !strings.ContainsAny(words[1], "<|[") {
				block += " " + words[1] // algorithm slices
			}
			blocks = append(blocks, block)
		}
	}
	return lines
}

// variants returns the lines that an option can be, of which | separates words, and " | " the rest of lines.
func variants(words []string) (lines []string) {
	all := [][]string{{}}
	for _, rest := range strings.Split(strings.Join(words[1:], " "), " | ") {
		all = [][]string{{}}
		for _, word := range append([]string{words[0]}, strings.Fields(rest)...) {
			choices := []string{word}
			if !strings.Contains(word, "<") || strings.Contains(word, "|<") {
				choices = strings.Split(word, "|")
			}
			var next [][]string
			for _, line := range all {
				for _, choice := range choices {
					next = append(next, append(slices.Clone(line), choice))
				}
			}
			all = next
		}
		for _, line := range all {
			lines = append(lines, strings.Join(line, " "))
		}
	}
	return lines
}

// formerCaddyfiles returns the Caddyfiles that were written for former versions.
func formerCaddyfiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(lists + "*.caddyfile")
	if err != nil || len(files) == 0 {
		t.Fatalf("no Caddyfiles in %s, %v", lists, err)
	}
	return files
}

// TestFormerCaddyfiles holds that a Caddyfile for a former version gives the same JSON, and that the JSON loads.
func TestFormerCaddyfiles(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "secret")
	t.Setenv("REDIS_HASH_KEYS", "a secret of 16 bytes or more")
	certificates := filepath.Dir(redistest.NewCertificate(t).CA())
	for _, file := range formerCaddyfiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			version := strings.TrimSuffix(filepath.Base(file), ".caddyfile")
			const gone = "BROKEN PROMISE: a Caddyfile that works in %s works in all that follow"
			config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(text, map[string]any{"filename": "Caddyfile"})
			if err != nil {
				t.Fatalf(gone+":\n\t%v", version, err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, config, "", "\t"); err != nil {
				t.Fatal(err)
			}
			path := strings.TrimSuffix(file, ".caddyfile") + ".json"
			if *add {
				if _, err := os.Stat(path); err != nil {
					if err := os.WriteFile(path, append(got.Bytes(), '\n'), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != strings.TrimSuffix(string(want), "\n") {
				t.Errorf(gone+", and gives the same JSON; differs from %s:\n%s", version, path, &got)
			}
			var c caddy.Config
			if err := json.Unmarshal(bytes.ReplaceAll(want, []byte("/etc/caddy/redis"), []byte(certificates)), &c); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(&c); err != nil {
				t.Errorf("BROKEN PROMISE: JSON that loads in %s loads in all that follow:\n\t%v", version, err)
			}
		})
	}
}
