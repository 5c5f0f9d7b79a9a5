package usage

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

const (
	maxScalar = 64       // bytes of a number or of a short text
	maxRaw    = 64 << 10 // bytes of a value for a path
	maxNested = 100      // objects and arrays inside one another, in a value for a path
)

// node is a name in the tree of the paths that a scanner looks for. The root is the
// top-level object.
type node struct {
	name     string
	children []*node
	slot     int  // what to call the value; 0: it is not looked for
	raw      bool // the value may be an object or an array
	counted  bool // of a value that is an array, how many texts, arrays and objects are in it
}

// add adds a path to the tree below n, and returns its last node.
func (n *node) add(names []string, slot int) *node {
	for _, name := range names {
		next := n.child([]byte(name), false)
		if next == nil {
			next = &node{name: name}
			n.children = append(n.children, next)
		}
		n = next
	}
	n.slot = slot
	return n
}

// child returns the child of that name, or nil.
func (n *node) child(name []byte, fold bool) *node {
	for _, c := range n.children {
		if c.name == string(name) || fold && strings.EqualFold(c.name, string(name)) {
			return c
		}
	}
	return nil
}

// longest returns the length of the longest name below n.
func (n *node) longest() int {
	l := len(n.name)
	for _, c := range n.children {
		l = max(l, c.longest())
	}
	return l
}

// sink gets the values that a scanner finds, as they are written: a text has its quotes.
// A value that is too long is nil. Of an object or array that is not looked into as a whole it is the
// first byte, and of one that is counted the count. The sink must not retain value.
type sink interface {
	found(slot int, value []byte)
}

// scanner finds values in a JSON text that comes in pieces. Its memory does not depend
// on the text. It does not check that the text is JSON. Several texts may follow one
// another. The zero value lacks root, maxKey and sink.
type scanner struct {
	root   *node
	fold   bool // names differ in case
	maxKey int  // bytes of a name, escapes included
	sink   sink
	ended  func() // is called at the end of each top-level object or array; nil: not called

	depth  int     // open objects and arrays
	walk   []*node // the nodes of the outermost of them, without a gap
	texts  int     // top-level objects and arrays that have ended
	quoted bool    // inside a string
	escape bool    // after a backslash

	key     []byte
	keying  bool  // the string may be a name
	keyed   bool  // key is complete
	pending *node // the node whose value is next

	taking taking
	target *node // the node whose value is taken
	value  []byte
	over   bool // value is too long
	base   int  // depth outside the value

	listed    *node // the node whose values are counted
	listDepth int   // depth inside the array of them
	items     int
}

// taking is the kind of value that is being taken.
type taking uint8

const (
	nothing taking = iota
	scalar         // a number, true, false, null
	text
	container
)

// structural are the bytes that matter outside strings.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true, ':': true, ',': true}

// reset forgets the text so far.
func (s *scanner) reset() {
	s.depth, s.texts, s.walk = 0, 0, s.walk[:0]
	s.quoted, s.escape, s.keying, s.keyed, s.pending = false, false, false, false, nil
	s.taking, s.target, s.listed = nothing, nil, nil
}

// complete reports whether the text so far is one or more whole objects or arrays.
func (s *scanner) complete() bool {
	return s.depth == 0 && s.texts > 0 && !s.quoted
}

// write scans the next piece of the text.
func (s *scanner) write(p []byte) {
	for i := 0; i < len(p); {
		switch {
		case s.quoted:
			i += s.inString(p[i:])
		case s.taking == nothing && s.pending == nil && !structural[p[i]]:
			i++
		default:
			s.step(p[i])
			i++
		}
	}
}

// inString scans p inside a string, and returns how many bytes it has used.
func (s *scanner) inString(p []byte) int {
	n := 0
	switch {
	case s.escape:
		s.escape = false
		n = 1
	default:
		for n < len(p) && p[n] != '"' && p[n] != '\\' {
			n++
		}
		if n < len(p) {
			s.escape = p[n] == '\\'
			s.quoted = s.escape
			n++
		}
	}
	switch {
	case s.taking != nothing:
		s.keep(p[:n]...)
		if !s.quoted && s.taking == text {
			s.deliver()
		}
	case s.keying && s.quoted:
		s.keying = len(s.key)+n <= s.maxKey
		if s.keying {
			s.key = append(s.key, p[:n]...)
		}
	case s.keying:
		s.keying, s.keyed = false, len(s.key)+n-1 <= s.maxKey
		if s.keyed {
			s.key = append(s.key, p[:n-1]...)
		}
	}
	return n
}

// step scans a byte outside a string.
func (s *scanner) step(c byte) {
	if s.taking == scalar {
		if !structural[c] && !isSpace(c) {
			s.keep(c)
			return
		}
		s.deliver()
	}
	if s.taking == container {
		s.inContainer(c)
		return
	}
	pending := s.pending
	if isSpace(c) {
		return
	}
	s.pending = nil
	switch c {
	case '"':
		s.quoted, s.keyed = true, false
		s.countItem()
		if pending.isTaken() {
			s.take(pending, text, c)
			return
		}
		s.keying, s.key = s.depth > 0 && len(s.walk) == s.depth, s.key[:0]
	case ':':
		if s.keyed {
			s.pending = s.lookUp()
		}
		s.keyed = false
	case ',':
		s.keyed = false
	case '{', '[':
		s.keyed = false
		s.countItem()
		if pending != nil && pending.raw {
			s.base = s.depth
			s.take(pending, container, c)
			s.depth++
			return
		}
		if pending.isTaken() {
			s.value = append(s.value[:0], c)
			s.sink.found(pending.slot, s.value)
		}
		if next := s.enter(pending); next != nil && c == '{' {
			s.walk = append(s.walk, next)
		}
		s.depth++
		if pending != nil && pending.counted && c == '[' {
			s.listed, s.listDepth, s.items = pending, s.depth, 0
		}
	case '}', ']':
		s.keyed = false
		if s.depth == 0 {
			return
		}
		if s.listed != nil && s.depth == s.listDepth {
			s.sink.found(s.listed.slot, s.count())
			s.listed = nil
		}
		s.depth--
		if len(s.walk) > s.depth {
			s.walk = s.walk[:s.depth]
		}
		if s.depth == 0 {
			s.texts++
			if s.ended != nil {
				s.ended()
			}
		}
	default:
		s.keyed = false
		if pending.isTaken() {
			s.take(pending, scalar, c)
		}
	}
}

// isTaken reports whether the value of n is looked for as it is; n may be nil.
func (n *node) isTaken() bool { return n != nil && n.slot != 0 && !n.counted }

// countItem counts a value that begins, if it is one of an array that is counted.
func (s *scanner) countItem() {
	if s.listed != nil && s.depth == s.listDepth {
		s.items++
	}
}

// count returns how many values have been counted in the array.
func (s *scanner) count() []byte { return strconv.AppendInt(s.value[:0], int64(s.items), 10) }

// enter returns the node of an object that is the value of pending, or nil if nothing in
// the object is looked for.
func (s *scanner) enter(pending *node) *node {
	switch {
	case s.depth == 0:
		return s.root
	case pending == nil || len(pending.children) == 0:
		return nil
	}
	return pending
}

// inContainer scans a byte of an object or array that is taken.
func (s *scanner) inContainer(c byte) {
	s.keep(c)
	switch c {
	case '"':
		s.quoted = true
	case '{', '[':
		s.depth++
		s.over = s.over || s.depth-s.base > maxNested
	case '}', ']':
		s.depth--
		if s.depth == s.base {
			s.deliver()
		}
	}
}

// lookUp returns the node of key in the innermost object, or nil.
func (s *scanner) lookUp() *node {
	name := s.key
	if bytes.IndexByte(name, '\\') >= 0 {
		var unescaped string
		if json.Unmarshal([]byte(`"`+string(name)+`"`), &unescaped) != nil {
			return nil
		}
		name = []byte(unescaped)
	}
	return s.walk[len(s.walk)-1].child(name, s.fold)
}

// take begins to keep the value of n, whose first byte is c.
func (s *scanner) take(n *node, kind taking, c byte) {
	s.taking, s.target, s.over, s.value = kind, n, false, s.value[:0]
	s.keep(c)
}

// keep appends to the value that is taken.
func (s *scanner) keep(p ...byte) {
	limit := maxScalar
	if s.target.raw {
		limit = maxRaw
	}
	s.over = s.over || len(s.value)+len(p) > limit
	if !s.over {
		s.value = append(s.value, p...)
	}
}

// deliver hands the value that was taken to the sink.
func (s *scanner) deliver() {
	slot, value := s.target.slot, s.value
	if s.over {
		value = nil
	}
	s.taking, s.target = nothing, nil
	s.sink.found(slot, value)
}

// isSpace reports whether c is white space in JSON.
func isSpace(c byte) bool {
	return c == ' ' || c == '\n' || c == '\r' || c == '\t'
}
