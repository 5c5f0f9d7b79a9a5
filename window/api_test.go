package window_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExportedNames keeps the public package small: what only stores need belongs into
// internal/engine. Methods are left out.
func TestExportedNames(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names, examples := map[string]bool{}, 0
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names[id.Name] = true
		}
	}
	for _, file := range files {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		test := strings.HasSuffix(file, "_test.go")
		for _, d := range syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				switch {
				case test && strings.HasPrefix(d.Name.Name, "Example"):
					examples++
				case !test && d.Recv == nil:
					add(d.Name)
				}
			case *ast.GenDecl:
				if test {
					continue
				}
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name)
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							add(id)
						}
					}
				}
			}
		}
	}
	if len(names) > 45 {
		t.Errorf("%d exported names, 45 is the most: %s", len(names), strings.Join(slices.Sorted(maps.Keys(names)), " "))
	}
	if examples < 4 {
		t.Errorf("%d examples, want 4", examples)
	}
}
