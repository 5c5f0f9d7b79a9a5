package accesslog

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON at i. It checks what it needs to find the ends of values, and no more: text between the members
// that are asked for may be malformed.
type scanner struct {
	s string
	i int
}

// space skips white space and returns the byte after it, 0 at the end.
func (c *scanner) space() byte {
	for ; c.i < len(c.s); c.i++ {
		if b := c.s[c.i]; b != ' ' && b != '\t' && b != '\n' && b != '\r' {
			return b
		}
	}
	return 0
}

// text reads a string whose opening quote is at i. It returns what is between the quotes.
func (c *scanner) text() (raw string, ok bool) {
	start := c.i + 1
	for i := start; i < len(c.s); {
		switch b := c.s[i]; {
		case b == '"':
			c.i = i + 1
			return c.s[start:i], true
		case b == '\\':
			i += 2
		default:
			i++
		}
	}
	return "", false
}

// skip passes the value at i, which is after white space.
func (c *scanner) skip() bool {
	if c.i >= len(c.s) {
		return false
	}
	switch c.s[c.i] {
	case '"':
		_, ok := c.text()
		return ok
	case '{', '[':
		return c.nested()
	}
	return c.literal() != ""
}

// nested passes the object or array at i.
func (c *scanner) nested() bool {
	depth := 0
	for c.i < len(c.s) {
		switch c.s[c.i] {
		case '"':
			if _, ok := c.text(); !ok {
				return false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				c.i++
				return true
			}
		}
		c.i++
	}
	return false
}

// literal passes a number, true, false or null.
func (c *scanner) literal() string {
	start := c.i
	for ; c.i < len(c.s); c.i++ {
		b := c.s[c.i]
		if (b < '0' || b > '9') && (b < 'a' || b > 'z') && b != '.' && b != '-' && b != '+' && b != 'E' {
			break
		}
	}
	return c.s[start:c.i]
}

// open passes the brace or bracket at i. It reports whether a member or an element follows.
func (c *scanner) open(end byte) bool {
	c.i++
	if c.space() != end {
		return true
	}
	c.i++
	return false
}

// name reads a member's name up to its value.
func (c *scanner) name() (raw string, ok bool) {
	if c.space() != '"' {
		return "", false
	}
	if raw, ok = c.text(); !ok || c.space() != ':' {
		return "", false
	}
	c.i++
	c.space()
	return raw, true
}

// next passes what is between two members or elements. It reports whether one follows.
func (c *scanner) next(end byte) (more, ok bool) {
	switch c.space() {
	case ',':
		c.i++
		return true, true
	case end:
		c.i++
		return false, true
	}
	return false, false
}

// member returns the value of a member of the object s, as it is written: the first one, if there are several.
func member(s, name string) (value string, ok bool) {
	c := scanner{s: s}
	if c.space() != '{' || !c.open('}') {
		return "", false
	}
	for {
		raw, ok := c.name()
		if !ok {
			return "", false
		}
		start := c.i
		if !c.skip() {
			return "", false
		}
		if raw == name || (len(raw) > len(name) && unquote(raw) == name) {
			return c.s[start:c.i], true
		}
		if more, ok := c.next('}'); !ok || !more {
			return "", false
		}
	}
}

// unquote returns the text of a JSON string, given what is between its quotes.
func unquote(raw string) string {
	i := strings.IndexByte(raw, '\\')
	if i < 0 {
		return raw
	}
	b := make([]byte, 0, len(raw))
	for {
		b = append(b, raw[:i]...)
		raw = raw[i+1:]
		if raw == "" {
			return string(b)
		}
		n := 1
		switch raw[0] {
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			var r rune
			r, n = hexRune(raw)
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, raw[0])
		}
		raw = raw[n:]
		if i = strings.IndexByte(raw, '\\'); i < 0 {
			return string(append(b, raw...))
		}
	}
}

// hexRune reads uXXXX, or two of them for a surrogate pair, and returns how many bytes it read.
func hexRune(raw string) (rune, int) {
	r, ok := hex4(raw)
	if !ok {
		return utf8.RuneError, 1
	}
	if !utf16.IsSurrogate(r) {
		return r, 5
	}
	if len(raw) > 6 && raw[5] == '\\' && raw[6] == 'u' {
		if low, ok := hex4(raw[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 11
			}
		}
	}
	return utf8.RuneError, 5
}

// hex4 reads the four digits after a u.
func hex4(raw string) (r rune, ok bool) {
	if len(raw) < 5 {
		return 0, false
	}
	for i := 1; i < 5; i++ {
		d := hexDigit(raw[i])
		if d < 0 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// hexDigit returns the value of a hexadecimal digit, -1 if b is not one.
func hexDigit(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}
