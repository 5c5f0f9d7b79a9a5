package window_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/slidingwindow/caddy-sliding-window"

// TestImportDirection holds the rings together: Caddy knows the engine, and the
// engine neither Caddy nor, above its Redis store, Redis.
func TestImportDirection(t *testing.T) {
	standard := func(i string) bool { return !strings.Contains(i, ".") }
	oneOf := func(imports ...string) func(string) bool {
		return func(i string) bool {
			return standard(i) || slices.ContainsFunc(imports, func(allowed string) bool { return i == allowed || strings.HasPrefix(i, allowed+"/") })
		}
	}
	const goRedis = "github.com/redis/go-redis/v9"
	const engine = module + "/internal/engine"
	for dir, allowed := range map[string]func(string) bool{
		"lua":               standard,
		"window":            standard,
		"internal/engine":   oneOf(module + "/window"),
		"internal/breaker":  oneOf(module+"/window", engine),
		"window/memory":     func(i string) bool { return standard(i) || i == module+"/window" || i == engine },
		"internal/owed":     standard,
		"internal/fallback": oneOf(module+"/window", engine, module+"/internal/breaker", module+"/internal/owed"),
		"internal/bans":     oneOf(module + "/internal/normalize"),
		"window/redis":      oneOf(goRedis, module+"/window", engine, module+"/internal/bans", module+"/internal/fallback", module+"/internal/owed", module+"/lua"),
		"window/httplimit":  oneOf(module+"/window", module+"/internal/answer"),
		"internal/answer":   oneOf(module+"/window", module+"/internal/normalize", "github.com/munnerz/goautoneg"),
		".":                 func(i string) bool { return !strings.HasPrefix(i, goRedis) },
	} {
		found := imports(t, filepath.Join("..", dir), false)
		if len(found) == 0 {
			t.Errorf("%s imports nothing", dir)
		}
		for file, imported := range found {
			for _, i := range imported {
				if !allowed(i) {
					t.Errorf("%s imports %s", path.Join(dir, filepath.Base(file)), i)
				}
			}
		}
	}
	for _, dir := range []string{".", "../lua"} {
		for file, imported := range imports(t, dir, true) {
			for _, i := range imported {
				if strings.HasPrefix(i, "github.com/caddyserver/") {
					t.Errorf("%s imports %s", file, i)
				}
			}
		}
	}
}

// imports returns what the Go files of a directory import: those that are no
// tests, or with all of its subdirectories everything.
func imports(t *testing.T, dir string, all bool) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != dir && !all:
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go" || !all && strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			i, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[name] = append(found[name], i)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
