// Package jsonform says what is wrong with the form of a configuration in JSON: members that there are not, and
// values of another kind than their option takes. Errors name the path, and what to write.
package jsonform

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
)

// example is a handler with every option, of which errors show parts. docs/json.md has it.
//
//go:embed example.json
var example []byte

// Unmarshal reads doc into v, a pointer to a struct.
func Unmarshal(doc []byte, v any) error {
	root := reflect.TypeOf(v).Elem()
	if err := (checker{root: root}).check("", doc, root, ""); err != nil {
		return err
	}
	return json.Unmarshal(doc, v)
}

// checker compares a document with the type of its root.
type checker struct {
	root  reflect.Type
	quiet bool // what is wrong is not said
}

var errWrong = errors.New("not of the type")

// check compares the value at a path with the type that it has to have. tag is that of its field.
func (c checker) check(path string, raw json.RawMessage, t reflect.Type, tag reflect.StructTag) error {
	switch {
	case string(raw) == "null":
		return nil // it is taken for a value that is left out
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) && t != reflect.TypeFor[json.RawMessage]():
		if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
			return fmt.Errorf("%s: %w%s", path, err, suchAs("; write", path))
		}
		return nil
	case t == reflect.TypeFor[json.RawMessage]():
		return c.checkModule(path, raw, tag)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return c.check(path, raw, t.Elem(), tag)
	case reflect.Struct:
		return c.checkStruct(path, raw, t)
	case reflect.Slice:
		return c.checkList(path, raw, t, tag)
	case reflect.Map:
		return c.checkMap(path, raw, t, tag)
	}
	if json.Unmarshal(raw, reflect.New(t).Interface()) != nil {
		return c.errKind(path, raw, t)
	}
	return nil
}

func (c checker) checkStruct(path string, raw json.RawMessage, t reflect.Type) error {
	members, ok := membersOf(raw)
	if !ok {
		return c.errKind(path, raw, t)
	}
	return c.checkMembers(path, "", members, t)
}

// checkMembers checks the members of a struct or, with its name, of a store.
func (c checker) checkMembers(path, store string, members []member, t reflect.Type) error {
	fields := fieldsOf(t)
	for _, m := range members {
		f, ok := fields.named(m.name)
		if !ok {
			return c.errUnknown(path, store, m, fields)
		}
		if err := c.check(join(path, m.name), m.value, f.Type, f.Tag); err != nil {
			return err
		}
	}
	return nil
}

func (c checker) checkList(path string, raw json.RawMessage, t reflect.Type, tag reflect.StructTag) error {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return c.errKind(path, raw, t)
	}
	for i, value := range list {
		if err := c.check(fmt.Sprintf("%s[%d]", path, i), value, t.Elem(), tag); err != nil {
			if path == "zones" {
				return fmt.Errorf("%s%w", zoneName(value), err)
			}
			return err
		}
	}
	return nil
}

// zoneName returns what an error of a zone begins with.
func zoneName(raw json.RawMessage) string {
	var zone struct{ Name any }
	_ = json.Unmarshal(raw, &zone)
	if name, ok := zone.Name.(string); ok && name != "" {
		return "zone " + name + ": "
	}
	return ""
}

// checkMap checks the values of a map. Modules check their own.
func (c checker) checkMap(path string, raw json.RawMessage, t reflect.Type, tag reflect.StructTag) error {
	members, ok := membersOf(raw)
	if !ok {
		return c.errKind(path, raw, t)
	}
	for _, m := range members {
		elem := t.Elem()
		if namespace := namespaceOf(tag); namespace != "" && elem == reflect.TypeFor[json.RawMessage]() {
			if elem = moduleType(namespace, m.name); elem == nil {
				if meant := foreign.Nearest(m.name, moduleNames(namespace)); meant != "" {
					return fmt.Errorf("%s is unknown; write %q", join(path, m.name), meant)
				}
				continue // Caddy refuses it
			}
		}
		if err := c.check(join(path, m.name), m.value, elem, ""); err != nil {
			return err
		}
	}
	return nil
}

// checkModule checks a module whose name is a member.
func (c checker) checkModule(path string, raw json.RawMessage, tag reflect.StructTag) error {
	inline := inlineKey.FindStringSubmatch(tag.Get("caddy"))
	if inline == nil {
		return nil
	}
	members, ok := membersOf(raw)
	if !ok {
		return c.errKind(path, raw, reflect.TypeFor[json.RawMessage]())
	}
	at := slices.IndexFunc(members, func(m member) bool { return m.name == inline[1] })
	if at < 0 {
		return fmt.Errorf("%s has no %s; write %s", path, inline[1], shown(exampleAt(path)))
	}
	var name string
	if json.Unmarshal(members[at].value, &name) != nil {
		return c.errKind(join(path, inline[1]), members[at].value, reflect.TypeFor[string]())
	}
	t := moduleType(namespaceOf(tag), name)
	if t == nil || t.Kind() != reflect.Struct {
		return nil // who loads it refuses it
	}
	return c.checkMembers(path, name, slices.Delete(members, at, at+1), t)
}

var isWord = regexp.MustCompile(`^[a-z_]+$`)

var firstZone = regexp.MustCompile(`^zones\[\d+\]`)

var inlineKey = regexp.MustCompile(`\binline_key=(\w+)`)

func namespaceOf(tag reflect.StructTag) string {
	_, namespace, _ := strings.Cut(tag.Get("caddy"), "namespace=")
	namespace, _, _ = strings.Cut(namespace, " ")
	return namespace
}

// moduleType returns the type of a module of Caddy's; nil if Caddy has no such module.
func moduleType(namespace, name string) reflect.Type {
	info, err := caddy.GetModule(namespace + "." + name)
	if err != nil {
		return nil
	}
	t := reflect.TypeOf(info.New())
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func moduleNames(namespace string) []string {
	var names []string
	for _, m := range caddy.GetModules(namespace) {
		names = append(names, m.ID.Name())
	}
	return names
}

// errUnknown refuses a member that an object does not have, and says which was probably meant: one of the object,
// one of another object, or what another product means by the word.
func (c checker) errUnknown(path, store string, m member, fields fields) error {
	if c.quiet {
		return errWrong
	}
	unknown := join(path, m.name) + " is unknown"
	cure := c.foreign(path, store, m.name)
	words := strings.Fields(strings.TrimPrefix(cure, "write "))
	meant, value := foreign.Nearest(m.name, fields.names), m.value
	if meant == "" && len(words) > 0 {
		meant = foreign.Nearest(words[0], fields.names)
		if len(words) > 1 && isWord.MatchString(words[1]) {
			value = json.RawMessage(strconv.Quote(words[1]))
		}
	}
	if meant != "" {
		f, _ := fields.named(meant)
		return fmt.Errorf("%s; write %q%s", unknown, meant, cureOf(": ", join(path, meant), value, f.Type))
	}
	if place := c.placeOf(m.name, path); place != "" {
		return fmt.Errorf("%s; write it in %s", unknown, place)
	}
	if cure != "" {
		return errors.New(unknown + "; " + cure)
	}
	return fmt.Errorf("%s; %s", unknown, suggest.Cure(m.name, fields.names))
}

// foreign returns what other products mean by a member of an object.
func (c checker) foreign(object, store, name string) string {
	if store != "" {
		if cure := foreign.Meaning("store "+store, name); cure != "" {
			return "write " + cure
		}
		return ""
	}
	list := index.ReplaceAllString(object, "")
	return cmp.Or(foreign.Meaning(list[strings.LastIndexByte(list, '.')+1:], name), foreign.Meaning(foreign.Option, name))
}

// placeOf returns the object of the handler that has a member of a name; "" for none.
func (c checker) placeOf(name, path string) string {
	type object struct {
		path string
		t    reflect.Type
	}
	for queue := []object{{"the handler", c.root}}; len(queue) > 0; queue = queue[1:] {
		o := queue[0]
		fields := fieldsOf(o.t)
		if _, ok := fields.named(name); ok {
			if zone := firstZone.FindString(path); zone != "" {
				return strings.Replace(o.path, "zones[]", zone, 1)
			}
			return o.path
		}
		for _, field := range fields.names {
			f, _ := fields.named(field)
			at, t := join(strings.TrimPrefix(o.path, "the handler"), field), f.Type
			for ; t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice; t = t.Elem() {
				if t.Kind() == reflect.Slice {
					at += "[]"
				}
			}
			if t.Kind() == reflect.Struct {
				queue = append(queue, object{at, t})
			}
		}
	}
	return ""
}
