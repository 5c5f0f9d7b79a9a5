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

// What the code imports, what go.mod and newest.mod require directly, and what CONTRIBUTING.md
// gives a reason for are the same modules.
func TestDependencies(t *testing.T) {
	direct, all := requirements(t, "go.mod")
	newest, _ := requirements(t, "newest.mod")
	sameModules(t, "newest.mod", newest, "go.mod", direct)
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
	maps.Copy(direct, tools(t))
	sameModules(t, "CONTRIBUTING.md", listed, "go.mod", direct)
}

// requirements returns the modules of a go.mod: those that are required directly, and all.
func requirements(t *testing.T, name string) (direct, all map[string]bool) {
	direct, all = make(map[string]bool), make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^(?:require |\t)(\S+) v\S+( // indirect)?$`).FindAllStringSubmatch(readFile(t, name), -1) {
		all[m[1]] = true
		if m[2] == "" {
			direct[m[1]] = true
		}
	}
	if len(all) < 10 {
		t.Fatalf("found %d modules in %s", len(all), name)
	}
	return direct, all
}

// tools returns the modules of the tools. go.mod has none: what it requires takes part in the versions of users' builds.
func tools(t *testing.T) map[string]bool {
	tools := make(map[string]bool)
	if strings.Contains(readFile(t, "go.mod"), "\ntool ") {
		t.Error("go.mod has tools")
	}
	_, all := requirements(t, "tools/go.mod")
	for _, m := range regexp.MustCompile(`(?m)^(?:tool |\t)(\S+/\S+)$`).FindAllStringSubmatch(readFile(t, "tools/go.mod"), -1) {
		for module := range all {
			if m[1] == module || strings.HasPrefix(m[1], module+"/") {
				tools[module] = true
			}
		}
	}
	if len(tools) == 0 {
		t.Fatal("found no tools in tools/go.mod")
	}
	return tools
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
