package window_test

import (
	"bytes"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// public returns the packages that programs can import, by the last element of their paths, as their compiled
// export data says.
func public(t *testing.T) map[string]*types.Package {
	t.Helper()
	list, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(list)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[name] = file
	}
	of := importer.ForCompiler(token.NewFileSet(), "gc", func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) })
	all := map[string]*types.Package{}
	for name := range exports {
		if strings.HasPrefix(name, module+"/window") && !isInternal(name) {
			if all[filepath.Base(name)], err = of.Import(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(all) < 4 {
		t.Fatalf("public packages %v, want window, memory, redis and httplimit", all)
	}
	return all
}

func isInternal(path string) bool {
	return strings.HasPrefix(path, module+"/") && strings.Contains(path, "/internal/")
}

// exported returns the exported names of a package.
func exported(of *types.Package) []string {
	return slices.DeleteFunc(of.Scope().Names(), func(name string) bool { return !token.IsExported(name) })
}

// methods returns the exported methods of a type and of a pointer to it.
func methods(of types.Type) (all []types.Object) {
	for _, of := range []types.Type{of, types.NewPointer(of)} {
		set := types.NewMethodSet(of)
		for i := range set.Len() {
			if m := set.At(i).Obj(); m.Exported() && !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	return all
}

// TestExportedNames keeps the public packages small: what only stores need belongs into internal/engine. Of a type, go doc
// shows a page of methods.
func TestExportedNames(t *testing.T) {
	all := public(t)
	if names := exported(all["window"]); len(names) > 46 {
		t.Errorf("%d exported names, 46 is the most: %s", len(names), strings.Join(names, " "))
	}
	for _, p := range all {
		for _, name := range exported(p) {
			if own := methods(p.Scope().Lookup(name).Type()); len(own) > 14 {
				t.Errorf("%s.%s has %d exported methods, 14 is the most", p.Name(), name, len(own))
			}
		}
	}
	examples := 0
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		examples += bytes.Count(text, []byte("\nfunc Example"))
	}
	if examples < 4 {
		t.Errorf("%d examples, want 4", examples)
	}
}

// TestNoInternalTypes holds that programs can name all that the public packages ask for and return.
func TestNoInternalTypes(t *testing.T) {
	for _, p := range public(t) {
		for _, name := range exported(p) {
			for _, found := range internals(p.Scope().Lookup(name).Type(), map[types.Type]bool{}) {
				t.Errorf("%s.%s names %s, which is internal", p.Name(), name, found)
			}
		}
	}
}

// internals returns the types of internal packages that a program meets at a type. A public type of another package is
// looked at there.
func internals(of types.Type, seen map[types.Type]bool) (found []string) {
	if seen[of] {
		return nil
	}
	first := len(seen) == 0
	seen[of] = true
	look := func(next types.Type) { found = append(found, internals(next, seen)...) }
	switch of := of.(type) {
	case *types.Alias:
		if p := of.Obj().Pkg(); p != nil && isInternal(p.Path()) {
			return []string{of.String()}
		}
		look(types.Unalias(of))
	case *types.Named:
		if p := of.Obj().Pkg(); p != nil && isInternal(p.Path()) {
			return []string{of.String()}
		}
		for arg := range of.TypeArgs().Types() {
			look(arg)
		}
		if !first && of.Obj().Exported() {
			return found
		}
		for _, m := range methods(of) {
			look(m.Type())
		}
		look(of.Underlying())
	case *types.Struct:
		for f := range of.Fields() {
			if f.Exported() || f.Embedded() {
				look(f.Type())
			}
		}
	case *types.Interface:
		for m := range of.Methods() {
			if m.Exported() {
				look(m.Type())
			}
		}
	case *types.Signature:
		for _, tuple := range []*types.Tuple{of.Params(), of.Results()} {
			for v := range tuple.Variables() {
				look(v.Type())
			}
		}
	case *types.Map:
		look(of.Key())
		look(of.Elem())
	case interface{ Elem() types.Type }: // a pointer, a slice, an array or a channel
		look(of.Elem())
	}
	return found
}
