package template

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
)

// LeastValue is how many bytes of a value Fields keep at least, with room for what says how long it was.
const LeastValue = 32

// Bounds are how many bytes may be noted of a value, and of a request.
type Bounds struct{ Value, Entry int64 }

// Check reports which bound is too small for fields of these names.
func (b Bounds) Check(names []string) error {
	if b.Value < LeastValue {
		return fmt.Errorf("max_value %d is too small; write %d or more", b.Value, LeastValue)
	}
	if least := max(1, LeastEntry(names)); b.Entry < least {
		return fmt.Errorf("max_entry %d is too small for %d fields, which take their names and %d bytes each; write %d or more", b.Entry, len(names), LeastValue, least)
	}
	return nil
}

// LeastEntry returns what fields of these names take if all values are long, in bytes.
func LeastEntry(names []string) int64 {
	var n int64
	for _, name := range names {
		n += int64(len(name)) + LeastValue
	}
	return n
}

// Fields are texts with names, to note of each request.
type Fields struct {
	all    []field
	bounds Bounds
}

type field struct {
	name  string
	value Key
}

// Add compiles a text that has been checked.
func (f *Fields) Add(name, text string) {
	value, _ := NewKey(text, Prefixes{})
	f.all = append(f.all, field{name, value})
}

// NewFields returns Fields with bounds that have been checked, and without a text.
func NewFields(b Bounds) *Fields { return &Fields{bounds: b} }

// Expand returns names and values for a request, no longer than the bounds. Fields that are nil have none.
func (f *Fields) Expand(vars map[string]any, repl *caddy.Replacer) []string {
	if f == nil {
		return nil
	}
	words := make([]string, 0, 2*len(f.all))
	left := f.bounds.Entry
	for i := range f.all {
		left -= int64(len(f.all[i].name)) + LeastValue
	}
	for i := range f.all {
		left += LeastValue
		value := shorten(f.all[i].value.ExpandPlain(vars, repl), min(f.bounds.Value, left))
		left -= max(LeastValue, int64(len(value)))
		words = append(words, f.all[i].name, value)
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
