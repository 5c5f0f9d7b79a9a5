package template

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// Text expands a value. It is compiled at load.
type Text struct {
	text    string
	Dynamic bool
	// Name of the placeholder if the value is that and nothing else.
	single string
}

func NewText(text string) Text {
	t := Text{text: text, Dynamic: strings.Contains(text, "{")}
	if k, err := NewKey(t.text, Prefixes{}); err == nil {
		t.single = k.Single
	}
	return t
}

// String returns the value as it is written.
func (t *Text) String() string { return t.text }

// Needs reports whether a placeholder of the value has none in repl, as without a request.
func (t *Text) Needs(repl *caddy.Replacer) bool {
	return t.Dynamic && slices.ContainsFunc(Names(t.text), func(name string) bool {
		_, ok := repl.Get(name)
		return !ok
	})
}

// Expand returns the value with its placeholders replaced.
func (t *Text) Expand(repl *caddy.Replacer) string {
	if t.single != "" {
		value, _ := repl.Get(t.single)
		return caddy.ToString(value)
	}
	return repl.ReplaceAll(t.text, "")
}

// Empty reports whether a placeholder of the value has none in the request, which the value
// was expanded for, with an error or not.
func (t *Text) Empty(repl *caddy.Replacer, err error) bool {
	switch {
	case !t.Dynamic:
		return false
	case t.single != "":
		if err == nil {
			return false // "" is neither a number nor a duration
		}
		value, _ := repl.Get(t.single)
		return caddy.ToString(value) == ""
	}
	for _, name := range Names(t.text) {
		if value, _ := repl.Get(name); caddy.ToString(value) == "" {
			return true
		}
	}
	return false
}
