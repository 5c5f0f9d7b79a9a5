package promises

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	_ "github.com/slidingwindow/caddy-sliding-window/window/httplimit" // go test caches results by what a test imports
)

const module = "github.com/slidingwindow/caddy-sliding-window"

// TestLibrary holds what programs can name of the packages that they can import.
func TestLibrary(t *testing.T) {
	var got []string
	for _, p := range public(t) {
		got = append(got, declarations(p)...)
	}
	hold(t, "library", got)
}

// public returns the packages below window that programs can import, from their compiled export data.
func public(t *testing.T) (all []*types.Package) {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./window/...")
	list.Env = caddyrun.Environment // the go command keeps its settings below XDG_CONFIG_HOME
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[name] = file
	}
	of := importer.ForCompiler(token.NewFileSet(), "gc", func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) })
	for name := range exports {
		if strings.HasPrefix(name, module+"/window") && !strings.Contains(name, "/internal/") {
			p, err := of.Import(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
	}
	if len(all) < 4 {
		t.Fatalf("public packages %v, want window, memory, redis and httplimit", all)
	}
	return all
}

// declarations returns a line for each exported name of a package, each exported field and each method.
func declarations(p *types.Package) (lines []string) {
	for _, name := range p.Scope().Names() {
		if !token.IsExported(name) {
			continue
		}
		of := p.Scope().Lookup(name)
		name = p.Name() + "." + name
		switch of := of.(type) {
		case *types.Const:
			lines = append(lines, fmt.Sprintf("const %s %s = %s", name, written(of.Type()), of.Val().ExactString()))
		case *types.Func:
			lines = append(lines, "func "+name+signature(of))
		case *types.TypeName:
			lines = append(lines, typeLines(name, of)...)
		default:
			lines = append(lines, fmt.Sprintf("var %s %s", name, written(of.Type())))
		}
	}
	return lines
}

// typeLines returns a line for a type, and for each of its exported fields and its methods. An interface is one line: a program
// that implements it needs all of its methods. With more, which are not exported, no program can.
func typeLines(name string, of *types.TypeName) (lines []string) {
	if of.IsAlias() {
		return []string{"type " + name + " = " + written(types.Unalias(of.Type()))}
	}
	switch under := of.Type().Underlying().(type) {
	case *types.Interface:
		var methods []string
		for m := range under.Methods() {
			if m.Exported() {
				methods = append(methods, m.Name()+signature(m))
			} else if !slices.Contains(methods, "more") {
				methods = append(methods, "more")
			}
		}
		slices.Sort(methods)
		return []string{fmt.Sprintf("type %s interface { %s }", name, strings.Join(methods, "; "))}
	case *types.Struct:
		lines = []string{"type " + name + " struct"}
		for f := range under.Fields() {
			if f.Exported() {
				lines = append(lines, fmt.Sprintf("field %s.%s %s", name, f.Name(), written(f.Type())))
			}
		}
	default:
		lines = []string{"type " + name + " " + written(under)}
	}
	values := types.NewMethodSet(of.Type())
	for m := range types.NewMethodSet(types.NewPointer(of.Type())).Methods() {
		receiver := "*" + name
		if values.Lookup(of.Pkg(), m.Obj().Name()) != nil {
			receiver = name
		}
		if m.Obj().Exported() {
			lines = append(lines, fmt.Sprintf("method (%s) %s%s", receiver, m.Obj().Name(), signature(m.Obj())))
		}
	}
	return lines
}

// signature returns what a function takes and returns.
func signature(of types.Object) string { return strings.TrimPrefix(written(of.Type()), "func") }

// written returns a type as code has it, without the names of parameters, which promise nothing.
func written(of types.Type) string {
	short := func(p *types.Package) string { return p.Name() }
	signature, ok := of.(*types.Signature)
	if !ok {
		return types.TypeString(of, short)
	}
	unnamed := func(tuple *types.Tuple) *types.Tuple {
		var all []*types.Var
		for v := range tuple.Variables() {
			all = append(all, types.NewParam(token.NoPos, nil, "", v.Type()))
		}
		return types.NewTuple(all...)
	}
	return types.TypeString(types.NewSignatureType(nil, nil, nil, unnamed(signature.Params()), unnamed(signature.Results()), signature.Variadic()), short)
}
