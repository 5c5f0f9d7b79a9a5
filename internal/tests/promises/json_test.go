package promises

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
)

// modules returns those of this plugin that a configuration names, by their IDs.
func modules(t *testing.T) map[string]reflect.Type {
	t.Helper()
	all := map[string]reflect.Type{}
	for _, id := range caddy.Modules() {
		info, err := caddy.GetModule(id)
		if err != nil {
			t.Fatal(err)
		}
		if of := reflect.TypeOf(info.New()); of.Kind() == reflect.Pointer && isOurs(of) && !strings.Contains(of.Elem().PkgPath(), "/internal/test") {
			all[id] = of.Elem()
		}
	}
	if len(all) < 5 {
		t.Fatalf("modules %v, want the handler, the app, two stores and the admin API", all)
	}
	return all
}

// TestJSON holds the fields of modules in a configuration.
func TestJSON(t *testing.T) {
	var got []string
	for id, of := range modules(t) {
		got = append(got, id)
		got = append(got, fields(id+" ", of)...)
	}
	hold(t, "json", got)
}

// fields returns a line for each field of a type in JSON, and of what is in it: its path, its kind, and whether it can be
// left out. The fields of a type within itself are left out.
func fields(prefix string, of reflect.Type, within ...reflect.Type) (lines []string) {
	for _, f := range reflect.VisibleFields(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" || name == "-" {
			continue
		}
		inner, brackets := f.Type, ""
		for {
			switch {
			case inner.Kind() == reflect.Pointer:
				inner = inner.Elem()
				continue
			case inner.Kind() == reflect.Slice && isOurs(inner.Elem()):
				inner, brackets = inner.Elem(), brackets+"[]"
				continue
			case inner.Kind() == reflect.Map && isOurs(inner.Elem()):
				inner, brackets = inner.Elem(), brackets+".*"
				continue
			}
			break
		}
		line := prefix + name + brackets + ": " + kind(inner)
		if options != "" {
			line += ", optional"
		}
		lines = append(lines, line)
		if outer := append(slices.Clone(within), of); isOurs(inner) && inner.Kind() == reflect.Struct && !slices.Contains(outer, inner) {
			lines = append(lines, fields(prefix+name+brackets+".", inner, outer...)...)
		}
	}
	return lines
}

// A type within itself ends.
func TestFieldsEnd(t *testing.T) {
	type list struct {
		Next  *list  `json:"next"`
		Other []list `json:"other"`
	}
	if got, want := fields("", reflect.TypeFor[list]()), []string{"next: object", "other[]: object"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// isOurs reports whether a type is of this module, or leads to one: others have promises of their own.
func isOurs(of reflect.Type) bool {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	return strings.HasPrefix(of.PkgPath(), module)
}

// kind returns what JSON a type is.
func kind(of reflect.Type) string {
	switch {
	case of == reflect.TypeFor[slidingwindow.Value]():
		return "number or text"
	case of == reflect.TypeFor[json.RawMessage]():
		return "module"
	case of.PkgPath() != "" && !isOurs(of):
		return of.String()
	}
	switch of.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		return "number"
	case reflect.Struct:
		return "object"
	case reflect.Interface:
		return "any"
	case reflect.Slice:
		return "list of " + kind(of.Elem())
	case reflect.Map:
		return "object of " + kind(of.Elem())
	}
	return of.String()
}
