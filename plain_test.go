package slidingwindow

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestPlain fails for a field of a zone, or of an option of it, that plain forgets: two zones are the same if they differ in
// the spelling of a value alone, or in a default that one of them writes down.
func TestPlain(t *testing.T) {
	comments := fieldComments(t)
	for i, f := range leaves(filled(reflect.TypeFor[Zone]()).Elem()) {
		plain := func(value string) string {
			z := filled(reflect.TypeFor[Zone]())
			switch field := leaves(z.Elem())[i].value; {
			case field.Kind() == reflect.String:
				field.SetString(value)
			case value == "":
				field.SetZero()
			default:
				if err := json.Unmarshal([]byte(value), field.Addr().Interface()); err != nil {
					t.Fatalf("%s: %v", f.name, err)
				}
			}
			return z.Interface().(*Zone).definition(false)
		}
		if f.value.Type() == reflect.TypeFor[Value]() && plain("7") != plain("007") && plain("90s") != plain("1m30s") && plain("50%") != plain("50.0%") {
			t.Errorf("%s: plain leaves numbers, durations and percentages as they are spelt", f.name)
		}
		m := regexp.MustCompile("Default:\\s+`?([\\w%{}.]+)`?[.,]").FindStringSubmatch(comments[f.name])
		if m != nil && plain("") != plain(strings.TrimSuffix(m[1], ".")) {
			t.Errorf("%s: plain does not leave out the default, %s", f.name, m[1])
		}
	}
}

// leaf is a field that has one word, by the name of its type and its own.
type leaf struct {
	name  string
	value reflect.Value
}

// leaves returns the fields of a struct, and of what is in it, that have one word: strings, and pointers to numbers.
func leaves(v reflect.Value) (all []leaf) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		switch {
		case !field.IsExported():
		case value.Kind() == reflect.String, value.Type() == reflect.TypeFor[*int]():
			all = append(all, leaf{v.Type().Name() + "." + field.Name, value})
		case isOurs(value.Type()):
			if value.Kind() == reflect.Slice {
				all = append(all, leaves(value.Index(0))...)
			} else {
				all = append(all, leaves(value.Elem())...)
			}
		}
	}
	return all
}

// filled returns a pointer to a struct of a type in which each option that has a block is there.
func filled(of reflect.Type) reflect.Value {
	v := reflect.New(of)
	for i := range of.NumField() {
		if !of.Field(i).IsExported() || !isOurs(of.Field(i).Type) {
			continue
		}
		field, inner := v.Elem().Field(i), filled(of.Field(i).Type.Elem())
		if field.Kind() == reflect.Slice {
			inner = reflect.Append(field, inner.Elem())
		}
		field.Set(inner)
	}
	if a, ok := v.Interface().(*Algorithm); ok {
		a.Name = "any"
	}
	return v
}

// isOurs reports whether a type is a pointer to a struct of this package, or a slice of such structs.
func isOurs(of reflect.Type) bool {
	return (of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice) && of.Elem().Kind() == reflect.Struct &&
		of.Elem().PkgPath() == reflect.TypeFor[Zone]().PkgPath()
}

// fieldComments returns the comments of the fields of structs, by the name of the type and their own.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	comments := make(map[string]string)
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						for _, name := range f.Names {
							comments[spec.Name.Name+"."+name.Name] = f.Doc.Text()
						}
					}
				}
			}
			return true
		})
	}
	return comments
}
