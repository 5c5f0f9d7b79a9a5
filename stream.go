package slidingwindow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

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

func (a *Algorithm) unmarshalFields(d *caddyfile.Dispenser) error {
	words := d.RemainingArgs()
	if len(words) == 0 {
		return d.ArgErr()
	}
	fields, err := readFields(words)
	if err != nil {
		return d.WrapErr(fmt.Errorf("algorithm %s: %w", a.Name, err))
	}
	a.Fields = fields
	return nil
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
	return s, nil
}

// check reports what is wrong with the field, which stands after others.
func (f Field) check(others []Field) error {
	switch f.Name {
	case "":
		return fmt.Errorf("fields: the name of the value %q is empty", f.Value)
	case "cost", "total", "gone":
		return fmt.Errorf("fields: the name %s is taken; use another one than cost, total and gone", f.Name)
	}
	if slices.ContainsFunc(others, func(o Field) bool { return o.Name == f.Name }) {
		return fmt.Errorf("fields: %s stands twice", f.Name)
	}
	if err := checkPlaceholders(f.Value); err != nil {
		return fmt.Errorf("fields: %s %w", f.Name, err)
	}
	return nil
}

// fieldTemplates are the fields of a zone, compiled at load.
type fieldTemplates []fieldTemplate

type fieldTemplate struct {
	name  string
	value keyTemplate
}

// newFieldTemplates compiles fields that have been checked.
func newFieldTemplates(a *Algorithm) fieldTemplates {
	if a == nil {
		return nil
	}
	var t fieldTemplates
	for _, f := range a.Fields {
		value, _ := newKeyTemplate(f.Value, addressPrefixes{})
		t = append(t, fieldTemplate{f.Name, value})
	}
	return t
}

// expand returns names and values for a request.
func (t fieldTemplates) expand(vars map[string]any, repl *caddy.Replacer) []string {
	if t == nil {
		return nil
	}
	words := make([]string, 0, 2*len(t))
	for i := range t {
		words = append(words, t[i].name, t[i].value.expandPlain(vars, repl))
	}
	return words
}
