package jsonform

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
)

// member is a member of an object, in the order of the document.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of an object; ok is false for other values.
func membersOf(raw json.RawMessage) (members []member, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		m := member{name: name.(string)} // the name of a member is one
		if d.Decode(&m.value) != nil {
			return nil, false
		}
		members = append(members, m)
	}
	return members, true
}

// fields are those of a struct that JSON has.
type fields struct {
	names []string // in order
	of    map[string]reflect.StructField
}

func fieldsOf(t reflect.Type) fields {
	all := fields{of: make(map[string]reflect.StructField)}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "" && name != "-" {
			all.names = append(all.names, name)
			all.of[name] = f
		}
	}
	return all
}

// named returns the field of a name, whose case makes no difference, as in encoding/json.
func (a fields) named(name string) (f reflect.StructField, ok bool) {
	if f, ok = a.of[name]; ok {
		return f, true
	}
	for other, f := range a.of {
		if strings.EqualFold(name, other) {
			return f, true
		}
	}
	return f, false
}

// required returns the names of fields that cannot be left out, or the first one.
func (a fields) required() []string {
	var names []string
	for _, name := range a.names {
		if !strings.Contains(a.of[name].Tag.Get("json"), ",omitempty") {
			names = append(names, name)
		}
	}
	if len(names) == 0 && len(a.names) > 0 {
		names = a.names[:1]
	}
	return names
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

var index = regexp.MustCompile(`\[\d+\]`)

// exampleAt returns the first value in the example at a path, whatever its indexes are; nil if it has no such path.
func exampleAt(path string) json.RawMessage {
	names := strings.Split(index.ReplaceAllString(path, ""), ".")
	if path == "" {
		return example
	}
	value := find(example, names)
	var list []json.RawMessage
	if strings.HasSuffix(path, "]") && json.Unmarshal(value, &list) == nil && len(list) > 0 {
		return list[0]
	}
	return value
}

func find(raw json.RawMessage, names []string) json.RawMessage {
	var list []json.RawMessage
	if len(names) > 0 && json.Unmarshal(raw, &list) == nil {
		for _, value := range list {
			if found := find(value, names); found != nil {
				return found
			}
		}
		return nil
	}
	if len(names) == 0 {
		return raw
	}
	members, _ := membersOf(raw)
	for _, m := range members {
		if m.name == names[0] {
			return find(m.value, names[1:])
		}
	}
	return nil
}

// oneLine makes one line of lines without an indent.
var oneLine = strings.NewReplacer(",\n", ", ", "\n", "")

// longest is how much of a value errors show, in bytes.
const longest = 80

// shown returns a value in one line, cut if it is long.
func shown(raw json.RawMessage) string {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return string(raw)
	}
	if compact.Len() <= longest {
		var lines bytes.Buffer
		_ = json.Indent(&lines, compact.Bytes(), "", "") // it was compacted
		return oneLine.Replace(lines.String())
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		return "[" + shown(list[0]) + ", ...]"
	}
	if members, ok := membersOf(raw); ok && len(members) > 0 {
		return `{"` + members[0].name + `": ` + shown(members[0].value) + ", ...}"
	}
	return "..."
}
