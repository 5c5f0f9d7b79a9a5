package e2e_test

import (
	"cmp"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What the code imports, what go.mod requires directly, and what CONTRIBUTING.md
// gives a reason for are the same modules.
func TestDependencies(t *testing.T) {
	direct, tools, all := requirements(t)
	imported := make(map[string]bool)
	for path := range imports(t) {
		best := ""
		for module := range all {
			if (path == module || strings.HasPrefix(path, module+"/")) && len(module) > len(best) {
				best = module
			}
		}
		if best != "" {
			imported[best] = true
		}
	}
	sameModules(t, "go.mod without // indirect", direct, "imports", imported)
	listed := make(map[string]bool)
	_, section, _ := strings.Cut(readFile(t, "CONTRIBUTING.md"), "\n## Dependencies\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| \\S").FindAllStringSubmatch(section, -1) {
		name := m[1]
		if !strings.Contains(strings.Split(name, "/")[0], ".") {
			name = "github.com/" + name
		}
		listed[name] = true
	}
	maps.Copy(direct, tools)
	sameModules(t, "CONTRIBUTING.md", listed, "go.mod", direct)
}

// requirements returns the modules of go.mod: those that are required directly, those
// of tools, and all.
func requirements(t *testing.T) (direct, tools, all map[string]bool) {
	text := readFile(t, "go.mod")
	direct, tools, all = make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^(?:require |\t)(\S+) v\S+( // indirect)?$`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
		if m[2] == "" {
			direct[m[1]] = true
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:tool |\t)(\S+/\S+)$`).FindAllStringSubmatch(text, -1) {
		for module := range all {
			if m[1] == module || strings.HasPrefix(m[1], module+"/") {
				tools[module] = true
			}
		}
	}
	if len(all) < 10 || len(tools) == 0 {
		t.Fatalf("found %d modules and %d tools in go.mod", len(all), len(tools))
	}
	return direct, tools, all
}

// imports returns the paths that the code of this module imports, tests included.
func imports(t *testing.T) map[string]bool {
	paths := make(map[string]bool)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || isModule(path)) {
			return cmp.Or(err, filepath.SkipDir)
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			name, _ := strconv.Unquote(i.Path.Value) // it was parsed
			paths[name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// isModule reports whether a directory is a module of its own, as bench is.
func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func sameModules(t *testing.T, nameA string, a map[string]bool, nameB string, b map[string]bool) {
	t.Helper()
	for _, module := range slices.Sorted(maps.Keys(a)) {
		if !b[module] {
			t.Errorf("%s has %s, %s has not", nameA, module, nameB)
		}
	}
	for _, module := range slices.Sorted(maps.Keys(b)) {
		if !a[module] {
			t.Errorf("%s has %s, %s has not", nameB, module, nameA)
		}
	}
}
