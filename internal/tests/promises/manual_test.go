package promises

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFieldsAreDocumented holds that each field of a module has a comment in sentences, which has the default if the field can be
// left out: Caddy's website makes the manual of the JSON from them.
func TestFieldsAreDocumented(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for id, of := range modules(t) {
		if typeComment(t, of) == "" {
			t.Errorf("%s: %s has no comment", id, of)
		}
		documented(t, of, seen)
	}
	if len(seen) < 14 {
		t.Errorf("only %d types with fields, want 14 or more", len(seen))
	}
}

func documented(t *testing.T, of reflect.Type, seen map[reflect.Type]bool) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if !isOurs(of) || of.Kind() != reflect.Struct || seen[of] {
		return
	}
	comments := fieldComments(t, of)
	for _, f := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" || name == "-" {
			continue
		}
		seen[of] = true
		text := strings.TrimSpace(comments[f.Name])
		switch {
		case !regexp.MustCompile("(?s)^[A-Z`].*\\.$").MatchString(text):
			t.Errorf("%s.%s: %q is no sentence", of, f.Name, text)
		case options != "" && !strings.Contains(text, "Default:") && !strings.Contains(text, "Required"):
			t.Errorf("%s.%s can be left out, and its comment has no default: %q", of, f.Name, text)
		}
		documented(t, f.Type, seen)
	}
}

// typeSpec returns the declaration of a type in this module, and its comment.
func typeSpec(t *testing.T, of reflect.Type) (spec *ast.TypeSpec, text string) {
	t.Helper()
	for _, file := range parsed(t, strings.TrimPrefix(strings.TrimPrefix(of.PkgPath(), module), "/")) {
		ast.Inspect(file, func(n ast.Node) bool {
			if decl, ok := n.(*ast.GenDecl); ok {
				for _, s := range decl.Specs {
					if s, ok := s.(*ast.TypeSpec); ok && s.Name.Name == of.Name() {
						spec, text = s, decl.Doc.Text()+s.Doc.Text()
					}
				}
			}
			return true
		})
	}
	if spec == nil {
		t.Fatalf("no file declares %s", of)
	}
	return spec, text
}

func typeComment(t *testing.T, of reflect.Type) string {
	t.Helper()
	_, text := typeSpec(t, of)
	return text
}

func fieldComments(t *testing.T, of reflect.Type) map[string]string {
	t.Helper()
	spec, _ := typeSpec(t, of)
	comments := map[string]string{}
	for _, f := range spec.Type.(*ast.StructType).Fields.List {
		for _, name := range f.Names {
			comments[name.Name] = f.Doc.Text()
		}
	}
	return comments
}

// parsed returns the files of a folder, without tests.
func parsed(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no code in %q: %v", dir, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

var fset = token.NewFileSet()

// TestManual holds that go doc of the library reads as a manual: each exported name has a comment in sentences that begins with it,
// each exported field has one, and the links between them work.
func TestManual(t *testing.T) {
	for _, dir := range []string{"window", "window/memory", "window/redis", "window/httplimit"} {
		p, err := doc.NewFromFiles(fset, parsed(t, dir), module+"/"+dir)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(p.Doc, "\n") < 3 {
			t.Errorf("%s: the comment of the package is no manual:\n%s", dir, p.Doc)
		}
		linksWork(t, p, dir, p.Doc)
		for _, v := range slices.Concat(p.Consts, p.Vars) {
			values(t, p, v)
		}
		for _, f := range p.Funcs {
			named(t, p, f.Name, f.Doc)
		}
		for _, of := range p.Types {
			named(t, p, of.Name, of.Doc)
			for _, v := range slices.Concat(of.Consts, of.Vars) {
				values(t, p, v)
			}
			for _, f := range slices.Concat(of.Funcs, of.Methods) {
				named(t, p, f.Name, f.Doc)
			}
			ast.Inspect(of.Decl, func(n ast.Node) bool {
				if list, ok := n.(*ast.FieldList); ok {
					membersHaveComments(t, p, of.Name, list)
				}
				_, isFunc := n.(*ast.FuncType)
				return !isFunc
			})
		}
	}
}

// named holds that the comment of a name is in sentences, and begins with it.
func named(t *testing.T, p *doc.Package, name, text string) {
	t.Helper()
	if !regexp.MustCompile(`^(A |An |The )?` + name + `\b`).MatchString(text) {
		t.Errorf("%s.%s: the comment does not begin with the name: %q", p.Name, name, text)
	}
	linksWork(t, p, name, text)
}

// values holds that constants or variables that are declared together have a comment together, or each its own.
func values(t *testing.T, p *doc.Package, v *doc.Value) {
	t.Helper()
	linksWork(t, p, v.Names[0], v.Doc)
	for _, spec := range v.Decl.Specs {
		s := spec.(*ast.ValueSpec)
		if v.Doc == "" && s.Doc.Text() == "" && s.Comment.Text() == "" {
			t.Errorf("%s.%s: no comment", p.Name, s.Names[0].Name)
		}
		linksWork(t, p, s.Names[0].Name, s.Doc.Text())
	}
}

// membersHaveComments holds that each exported field, or method of an interface, has a comment, or is of a group that has one.
func membersHaveComments(t *testing.T, p *doc.Package, of string, list *ast.FieldList) {
	t.Helper()
	had, last := "", 0
	for _, f := range list.List {
		text := f.Doc.Text() + f.Comment.Text()
		if line := fset.Position(f.Pos()).Line; text != "" || line != last+1 {
			had = text
		}
		last = fset.Position(f.End()).Line
		for _, name := range f.Names {
			if name.IsExported() && had == "" {
				t.Errorf("%s.%s.%s: no comment", p.Name, of, name.Name)
			}
		}
		linksWork(t, p, of, text)
	}
}

// linksWork holds that what looks like a link to a name leads to one.
func linksWork(t *testing.T, p *doc.Package, name, text string) {
	t.Helper()
	for _, block := range p.Parser().Parse(text).Content {
		if paragraph, ok := block.(*comment.Paragraph); ok {
			for _, part := range paragraph.Text {
				if plain, ok := part.(comment.Plain); ok && regexp.MustCompile(`\[\*?[A-Za-z]+(\.[A-Z]\w*)*\]`).MatchString(string(plain)) {
					t.Errorf("%s.%s: no name for a link in %q", p.Name, name, plain)
				}
			}
		}
	}
}
