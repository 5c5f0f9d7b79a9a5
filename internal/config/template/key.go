package template

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
)

// DefaultKey is what a zone counts by unless told otherwise.
const DefaultKey = "{http.vars.client_ip}"

// Key expands a zone's key. It is compiled at load, so that expanding the usual key,
// the client's address, is cheap.
type Key struct {
	text string
	// Name of the placeholder if the key is that and nothing else.
	Single string
	// Number of placeholders. Values of several are delimited by their length,
	// so that different values never make the same key.
	Placeholders int
	Prefixes     Prefixes
	FoldCase     bool
	// Placeholders of the key whose values have several spellings, by name; and that of
	// the single one.
	spellings map[string]Spelling
	Spelling  Spelling
}

func NewKey(text string, p Prefixes) (Key, error) {
	k := Key{text: text, Prefixes: p}
	var name string
	literal, err := caddy.NewEmptyReplacer().ReplaceFunc(text, func(placeholder string, _ any) (any, error) {
		k.Placeholders++
		name = placeholder
		if s, ok := spellingOf(name); ok {
			if k.spellings == nil {
				k.spellings = make(map[string]Spelling)
			}
			k.spellings[name] = s
		}
		return "", nil
	})
	if err != nil {
		return k, err
	}
	switch {
	case k.Placeholders == 0:
		k.text = literal
	case k.Placeholders == 1 && literal == "":
		k.Single, k.Spelling = name, k.spellings[name]
	}
	return k, nil
}

// IsAddress reports whether each key is the address of a client.
func (k *Key) IsAddress() bool {
	return slices.Contains([]string{clientIPName, "client_ip", "http.request.remote", "http.request.remote.host"}, k.Single)
}

// checkBraces reports a placeholder that does not end: to Caddy that is text, the same
// for all requests.
func checkBraces(text string) error {
	from := 0
	for i := strings.IndexByte(text, '{'); i >= 0; i = strings.IndexByte(text[from:], '{') {
		from += i + 1
		escaped := from > 1 && text[from-2] == '\\'
		if !escaped && strings.IndexByte(text[from:], '}') < 0 {
			return fmt.Errorf(`%q: a placeholder does not end; write }, or \{ for a brace`, text)
		}
	}
	return nil
}

// Check refuses a text with a placeholder that Caddy does not know, or that takes
// memory in an amount that clients choose.
func Check(text string) error {
	if err := checkBraces(text); err != nil {
		return err
	}
	_, err := caddy.NewEmptyReplacer().ReplaceFunc(text, func(name string, _ any) (any, error) {
		if name == "http.request.body" || name == "http.request.body_base64" {
			return "", fmt.Errorf("{%s} would keep the body of every request in memory; use a header field or the path", name)
		}
		if err := cmp.Or(CheckKnown(name), checkWhole(name)); err != nil {
			return "", err
		}
		return "", checkShorthand(name)
	})
	if err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// checkWhole refuses the name of a placeholder of which a part is missing, as of a variable of the environment
// that is not set, or of a snippet that is imported with too few arguments.
func checkWhole(name string) error {
	switch {
	case name == "":
		return errors.New(`{} names no placeholder; write its name, or \{\} for braces`)
	case strings.HasSuffix(name, "."):
		return fmt.Errorf("{%s} never has a value; write a name after the dot", name)
	case strings.HasPrefix(name, "args[") || strings.HasPrefix(name, "args.") || name == "block" || strings.HasPrefix(name, "blocks."):
		return fmt.Errorf("{%s} has a value in a snippet only; write one after import <snippet>, or take the placeholder out", name)
	}
	return nil
}

// shorthands compiles 30 expressions, 2.5 MB, when it is first called.
var shorthands = sync.OnceValue(httpcaddyfile.NewShorthandReplacer)

// checkShorthand refuses a Caddyfile shorthand for a longer placeholder. JSON has no shorthands.
// In a Caddyfile, Caddy does not replace a shorthand with one dot more than it expects, such as
// {cookie.connect.sid}.
func checkShorthand(name string) error {
	if name == "client_ip" || strings.HasPrefix(name, "file.") {
		return nil // placeholder knows the first one, and Caddy reads a file for the other
	}
	if long := longName(name); long != "" {
		return fmt.Errorf("{%s} is no placeholder here; write {%s}", name, long)
	}
	return nil
}

// longName returns the name that a shorthand of Caddyfiles abbreviates; empty for other names.
func longName(name string) string {
	short, rest, dotted := strings.Cut(name, ".")
	if dotted {
		short += ".x"
	}
	segment := caddyfile.Segment{{Text: "{" + short + "}"}}
	shorthands().ApplyToSegment(&segment)
	long := strings.Trim(segment[0].Text, "{}")
	switch {
	case long == short:
		return ""
	case dotted:
		return strings.TrimSuffix(long, "x") + rest
	}
	return long
}

// CheckKey reports what is wrong with a key as configured.
func CheckKey(text string) error {
	if err := Check(text); err != nil {
		return fmt.Errorf("key %w", err)
	}
	_, err := caddy.NewEmptyReplacer().ReplaceFunc(text, func(name string, _ any) (any, error) {
		if strings.HasPrefix(name, "file.") {
			return nil, fmt.Errorf("{%s} would read the disk for every request, and be the same for all; use text, or {env.*}", name)
		}
		if name == "http.request.uuid" || name == "http.request.duration" || name == "http.request.duration_ms" {
			return nil, fmt.Errorf("{%s} differs for each request, so that no limit would be reached; use what a client has in common, such as {client_ip}", name)
		}
		return "", nil
	})
	if err != nil {
		return fmt.Errorf("key %q: %w", text, err)
	}
	return nil
}

// Expand returns the key of a request; empty says that none of its placeholders
// had a value.
func (k *Key) Expand(vars map[string]any, repl *caddy.Replacer) (key string, empty bool) {
	switch {
	case k.Placeholders == 0:
		return k.text, false
	case k.Single != "":
		key = k.value(k.Single, k.Spelling, vars, repl)
		return key, key == ""
	}
	empty = true
	key, _ = repl.ReplaceFunc(k.text, func(name string, _ any) (any, error) {
		value := k.value(name, k.spellings[name], vars, repl)
		empty = empty && value == ""
		if k.Placeholders > 1 {
			value = strconv.Itoa(len(value)) + ":" + value
		}
		return value, nil
	}) // no error: the template was read once at load
	return key, empty
}

// value returns the value of a placeholder in the one spelling that counts.
func (k *Key) value(name string, s Spelling, vars map[string]any, repl *caddy.Replacer) string {
	if s.of != nil {
		name = s.from
	}
	return k.spell(name, Value(name, vars, repl), s)
}

// spell returns the value of the placeholder in the one spelling that counts.
func (k *Key) spell(name, value string, s Spelling) string {
	value = OwnValue(name, value)
	if s.of != nil {
		value = s.of(value)
	}
	if k.FoldCase {
		value = normalize.Fold(strings.TrimSpace(value))
	}
	return k.Prefixes.group(value)
}

// ExpandPlain returns the text with the placeholders' values as they are.
func (k *Key) ExpandPlain(vars map[string]any, repl *caddy.Replacer) string {
	switch {
	case k.Placeholders == 0:
		return k.text
	case k.Single != "":
		return Value(k.Single, vars, repl)
	}
	text, _ := repl.ReplaceFunc(k.text, func(name string, _ any) (any, error) {
		return Value(name, vars, repl), nil
	}) // no error: the template was read once at load
	return text
}

// Value returns the value of a placeholder; vars are the variables of the
// request.
func Value(name string, vars map[string]any, repl *caddy.Replacer) string {
	// {client_ip} is what JSON users write by habit; Caddy knows it in
	// Caddyfiles only.
	if name == "http.vars.client_ip" || name == "client_ip" {
		ip, _ := vars[caddyhttp.ClientIPVarKey].(string)
		return ip
	}
	value, _ := repl.Get(name)
	return caddy.ToString(value)
}

// Prefixes groups addresses by their leading bits.
type Prefixes struct {
	V4, V6 int
}

const (
	DefaultIPv4Prefix = 32
	DefaultIPv6Prefix = 64
)

// group returns the network of a value that is an address, with or without a port, and
// any other value as it is.
func (p Prefixes) group(value string) string {
	// Most values can be told from an address at a glance, and a plain IPv4
	// address is its own group by default.
	if len(value) == 0 || len(value) > 64 {
		return value
	}
	if p.V4 == DefaultIPv4Prefix && strings.IndexByte(value, ':') < 0 {
		return value
	}
	addr, ok := normalize.Address(value)
	if !ok {
		return value
	}
	bits := p.bits(addr)
	if bits == addr.BitLen() {
		return addr.String()
	}
	network, _ := addr.Prefix(bits) // the range of bits was checked at load
	return network.String()
}
