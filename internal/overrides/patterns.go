package overrides

import (
	"slices"
)

// patterns find the pattern with the longest literal part that a key has at its beginning or its
// end.
type patterns struct{ prefixes, suffixes literals }

func (p *patterns) add(literal string, suffix bool, r *Rule) {
	if suffix {
		p.suffixes.backward = true
		p.suffixes.add(literal, r)
		return
	}
	p.prefixes.add(literal, r)
}

func (p *patterns) seal() {
	p.prefixes.seal()
	p.suffixes.seal()
}

func (p *patterns) find(key string, c *clock) *Rule {
	a, long := p.prefixes.find(key, c)
	b, longer := p.suffixes.find(key, c)
	if a == nil || b != nil && (longer > long || longer == long && b.ID < a.ID) {
		return b
	}
	return a
}

// literals are texts in order, read forward or backward.
type literals struct {
	backward bool
	nodes    []literal
}

type literal struct {
	text   string
	parent int // the place of the longest other text that this one begins with; -1 for none
	rule   *Rule
}

func (l *literals) add(text string, r *Rule) {
	for i := range l.nodes {
		if o := &l.nodes[i]; o.text == text {
			o.rule = r.over(o.rule)
			return
		}
	}
	l.nodes = append(l.nodes, literal{text, -1, r})
}

// common returns how many bytes two texts have in common from where they are read, and how they
// compare.
func (l *literals) common(a, b string) (n, order int) {
	most := min(len(a), len(b))
	if l.backward {
		for n < most && a[len(a)-1-n] == b[len(b)-1-n] {
			n++
		}
		if n < most {
			return n, int(a[len(a)-1-n]) - int(b[len(b)-1-n])
		}
		return n, len(a) - len(b)
	}
	for n < most && a[n] == b[n] {
		n++
	}
	if n < most {
		return n, int(a[n]) - int(b[n])
	}
	return n, len(a) - len(b)
}

// seal sorts the texts, and finds their parents.
func (l *literals) seal() {
	slices.SortFunc(l.nodes, func(a, b literal) int {
		_, order := l.common(a.text, b.text)
		return order
	})
	for i := range l.nodes {
		at := i - 1
		for at >= 0 {
			if n, _ := l.common(l.nodes[at].text, l.nodes[i].text); n == len(l.nodes[at].text) {
				break
			}
			at = l.nodes[at].parent
		}
		l.nodes[i].parent = at
	}
}

// last returns the place of the last text at or before the key; -1 for none. Those of it and its parents that
// are no longer than what it shares with the key are what the key begins with.
func (l *literals) last(key string) (at, shared int) {
	low, high := 0, len(l.nodes)
	for low < high {
		middle := (low + high) / 2
		if n, order := l.common(l.nodes[middle].text, key); order <= 0 {
			low, shared = middle+1, n
		} else {
			high = middle
		}
	}
	return low - 1, shared
}

// find returns the rule of the longest text that the key begins with, and its length.
func (l *literals) find(key string, c *clock) (*Rule, int) {
	last, shared := l.last(key)
	for at := last; at >= 0; at = l.nodes[at].parent {
		if text := l.nodes[at].text; len(text) <= shared && c.live(l.nodes[at].rule) {
			return l.nodes[at].rule, len(text)
		}
	}
	return nil, 0
}
