package slidingwindow

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
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
	if len(sections) != 4 {
		t.Fatalf("%d sections on how to add something, want 4", len(sections))
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
