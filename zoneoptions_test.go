package slidingwindow

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestZoneOptions fails for a field of Zone that no option of the table reads, and for an option that
// the reference or the comment of the directive leaves out.
func TestZoneOptions(t *testing.T) {
	others := map[string]string{"name": "", "limits": "limit", "empty_key_status": "empty_key"}
	names := zoneOptionNames()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Zone]()) {
		if !field.IsExported() {
			continue
		}
		option, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if other, ok := others[option]; ok {
			option = other
		}
		if option != "" && !slices.Contains(names, option) {
			t.Errorf("%s: no option of zoneOptions reads it", field.Name)
		}
	}
	for file, begin := range map[string]string{"docs/caddyfile.md": `(?m)^\t+(# )?`, "caddyfile.go": `(?m)^//\t+`} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !regexp.MustCompile(begin + name + `\b`).Match(text) {
				t.Errorf("%s: %s leaves it out", name, file)
			}
		}
	}
}

// TestContributing fails for a place in CONTRIBUTING.md that is not there any more: a file, or a
// name that no file of its sentence has.
func TestContributing(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?s)\n## To .*?\n## `).FindAllString(strings.ReplaceAll(string(text), "\n## To ", "\n## \n## To "), -1)
	if len(sections) != 5 {
		t.Fatalf("%d sections on how to do something, want 5", len(sections))
	}
	file := regexp.MustCompile(`^[a-z_/.]+\.(go|md|lua)$|^(internal|window|docs|lua)/[a-z/]+$`)
	name := regexp.MustCompile(`^[A-Za-z]+$`)
	for _, section := range sections {
		for _, item := range regexp.MustCompile(`(?m)^\d\. `).Split(section, -1)[1:] {
			var all strings.Builder
			var names []string
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(item, -1) {
				switch word := m[1]; {
				case file.MatchString(word):
					paths := []string{word}
					if filepath.Ext(word) == "" {
						paths, _ = filepath.Glob(word + "/*.go")
					}
					for _, path := range paths {
						code, err := os.ReadFile(path)
						if err != nil {
							t.Errorf("%s: %v", word, err)
						}
						all.Write(code)
					}
				case name.MatchString(word):
					names = append(names, word)
				}
			}
			for _, word := range names {
				if !strings.Contains(all.String(), word) {
					t.Errorf("%q is in no file of its sentence: %s", word, item)
				}
			}
		}
	}
}

// TestAlgorithmWords fails for an algorithm of the engine that no word of a configuration builds, and
// for a word or an option that docs/algorithms.md or docs/caddyfile.md leaves out.
func TestAlgorithmWords(t *testing.T) {
	for _, f := range window.AllFacts() {
		if !f.Held && !slices.Contains(algorithmNames, f.Word) { // else concurrent builds it
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

// TestOnErrorWords fails for a word of on_error that a document, a comment or an error leaves out.
func TestOnErrorWords(t *testing.T) {
	for _, place := range []struct{ file, before, after string }{
		{"docs/redis.md", "\n| `", "`"},
		{"docs/caddyfile.md", `on_error [^\n]*\b`, `\b`},
		{"caddyfile.go", `//\t\ton_error [a-z|]*\b`, `\b`},
		{"app.go", "while the store is away: [^\"]*`", "`"},
		{"module.go", "while the store is away: [^\"]*`", "`"},
	} {
		text, err := os.ReadFile(place.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range control.OnErrors {
			if !regexp.MustCompile(place.before + string(word) + place.after).Match(text) {
				t.Errorf("%s: %s leaves it out", word, place.file)
			}
		}
	}
	for _, line := range []string{"on_error", "on_error a b", "on_error none"} {
		err := new(App).UnmarshalCaddyfile(caddyfile.NewTestDispenser("sliding_window {\n" + line + "\n}"))
		for _, word := range control.OnErrors {
			if err == nil || !strings.Contains(err.Error(), string(word)) {
				t.Errorf("%s: the error leaves %s out: %v", line, word, err)
			}
		}
	}
}

// TestSyntax fails for an option that has no line in internal/config/suggest/args.go, so that errors do not say how it is written.
func TestSyntax(t *testing.T) {
	names := append(zoneOptionNames(), "zone", "store", "on_error", "status", "headers", "errors", "jitter", "log_key")
	for _, o := range algorithmOptions {
		names = append(names, o.name)
	}
	blocks := []string{"match", "count_if", "settle", "load", "alert"} // other errors say what belongs into them
	for _, name := range names {
		d := caddyfile.NewTestDispenser(name + " a b c d e")
		d.Next()
		if err := suggest.ArgErr(d); !slices.Contains(blocks, name) && !strings.Contains(err.Error(), "; write "+name+" ") {
			t.Errorf("%s: errors do not say how it is written: %v", name, err)
		}
	}
}

// Options are read in any order: what is wrong is told at the line of the option itself.
func TestOptionsInAnyOrder(t *testing.T) {
	lines := []string{"limit 10 1s", "key {client_ip}", "algorithm log", "cost 2", "empty_key deny", "enforce on", "settle {\nusage openai\n}", "load {\ncpu 70% 95%\n}", "top_talkers", "fallback 1 1s", "ban 10m {\nafter 2 in 1m\n}", "concurrent 4 {\nhold status\n}"}
	for i := range lines {
		order := append(slices.Clone(lines[i:]), lines[:i]...)
		for range 2 {
			h := new(Handler)
			if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("sliding_window {\nzone z {\n" + strings.Join(order, "\n") + "\n}\n}")); err != nil {
				t.Errorf("%q: %v", order, err)
			}
			slices.Reverse(order)
		}
	}
}
