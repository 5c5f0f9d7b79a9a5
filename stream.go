package slidingwindow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/template"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Field is something to note of a request, beside its time and cost.
type Field struct {
	// The name, different from those of the other fields. `cost`, `total` and
	// `gone` are taken.
	Name string `json:"name"`

	// The value; placeholders are allowed.
	Value string `json:"value"`
}

// readFields reads names and values in turn.
func readFields(words []string) ([]Field, error) {
	if len(words)%2 != 0 {
		return nil, fmt.Errorf("fields %s: a value is missing; write fields <name> <value> ..., and values with spaces in quotes", strings.Join(words, " "))
	}
	fields := make([]Field, 0, len(words)/2)
	for i := 0; i < len(words); i += 2 {
		fields = append(fields, Field{Name: words[i], Value: words[i+1]})
	}
	return fields, nil
}

// stream returns the algorithm of that name as the engine takes it, or what is
// wrong with its options.
func (a *Algorithm) stream() (window.Algorithm, error) {
	if len(a.Fields) > window.MaxFields {
		return nil, fmt.Errorf("fields: %d are too many; %d are allowed", len(a.Fields), window.MaxFields)
	}
	for i, f := range a.Fields {
		if err := f.check(a.Fields[:i]); err != nil {
			return nil, err
		}
	}
	var s window.Stream
	if a.Keep != "" {
		var err error
		if s.Keep, err = a.Keep.duration(); err != nil {
			return nil, fmt.Errorf("keep %w", err)
		}
	}
	_, err := a.noteBounds()
	return s, err
}

// Bounds of what is noted of a request, in bytes.
const (
	defaultMaxValue = 256
	leastMaxValue   = 32 // with room for what says how long a value was
	commonMaxEntry  = 1024
)

// leastMaxEntry returns what the fields take if all values are long, in bytes.
func leastMaxEntry(fields []Field) int64 {
	var n int64
	for _, f := range fields {
		n += int64(len(f.Name)) + leastMaxValue
	}
	return n
}

func defaultMaxEntry(fields []Field) int64 { return max(commonMaxEntry, leastMaxEntry(fields)) }

// noteBounds are how many bytes may be noted of a value, and of a request.
type noteBounds struct{ value, entry int64 }

// noteBounds returns the bounds of the fields, or what is wrong with them.
func (a *Algorithm) noteBounds() (b noteBounds, err error) {
	b = noteBounds{defaultMaxValue, defaultMaxEntry(a.Fields)}
	if a.MaxValue != "" {
		if b.value, err = a.MaxValue.int(); err != nil {
			return b, fmt.Errorf("max_value %w", err)
		}
	}
	if a.MaxEntry != "" {
		if b.entry, err = a.MaxEntry.int(); err != nil {
			return b, fmt.Errorf("max_entry %w", err)
		}
	}
	if b.value < leastMaxValue {
		return b, fmt.Errorf("max_value %d is too small; write %d or more", b.value, leastMaxValue)
	}
	if least := max(1, leastMaxEntry(a.Fields)); b.entry < least {
		return b, fmt.Errorf("max_entry %d is too small for %d fields, which take their names and %d bytes each; write %d or more", b.entry, len(a.Fields), leastMaxValue, least)
	}
	return b, nil
}

// check refuses a field that cannot work after others.
func (f Field) check(others []Field) error {
	switch f.Name {
	case "":
		return fmt.Errorf("fields: the name of the value %q is empty", f.Value)
	case "cost", "total", "gone":
		return fmt.Errorf("fields: the name %s is taken; use another one than cost, total and gone", f.Name)
	}
	if slices.ContainsFunc(others, func(o Field) bool { return o.Name == f.Name }) {
		return fmt.Errorf("fields: duplicate field %s; keep one", f.Name)
	}
	if err := template.Check(f.Value); err != nil {
		return fmt.Errorf("fields: %s %w", f.Name, err)
	}
	return nil
}

// fieldTemplates are the fields of a zone, compiled at load.
type fieldTemplates struct {
	fields []fieldTemplate
	bounds noteBounds
}

type fieldTemplate struct {
	name  string
	value template.Key
}

// newFieldTemplates compiles fields that have been checked. It returns nil without fields.
func newFieldTemplates(a *Algorithm) *fieldTemplates {
	if a == nil || len(a.Fields) == 0 {
		return nil
	}
	t := new(fieldTemplates)
	t.bounds, _ = a.noteBounds()
	for _, f := range a.Fields {
		value, _ := template.NewKey(f.Value, template.Prefixes{})
		t.fields = append(t.fields, fieldTemplate{f.Name, value})
	}
	return t
}

// expand returns names and values for a request, no longer than the bounds.
func (t *fieldTemplates) expand(vars map[string]any, repl *caddy.Replacer) []string {
	if t == nil {
		return nil
	}
	words := make([]string, 0, 2*len(t.fields))
	left := t.bounds.entry
	for i := range t.fields {
		left -= int64(len(t.fields[i].name)) + leastMaxValue
	}
	for i := range t.fields {
		left += leastMaxValue
		value := shorten(t.fields[i].value.ExpandPlain(vars, repl), min(t.bounds.value, left))
		left -= max(leastMaxValue, int64(len(value)))
		words = append(words, t.fields[i].name, value)
	}
	return words
}

// shorten returns the beginning of a value that has more than n bytes, with how many it
// has, in n bytes at most.
func shorten(value string, n int64) string {
	if int64(len(value)) <= n {
		return value
	}
	end := "…[" + strconv.Itoa(len(value)) + "]"
	cut := int(n) - len(end)
	for start := cut; start > 0 && start > cut-utf8.UTFMax; start-- {
		if utf8.RuneStart(value[start]) { // not in the middle of a character
			cut = start
			break
		}
	}
	return value[:cut] + end
}
