package lint

import (
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// pattern is a path, or what paths begin with.
type pattern struct {
	text   string
	prefix bool
}

func (p pattern) String() string {
	switch {
	case p.prefix && p.text == "":
		return "every path"
	case p.prefix:
		return p.text + "*"
	}
	return p.text
}

func texts(list []pattern) string {
	var all []string
	for _, p := range list {
		all = append(all, p.String())
	}
	return strings.Join(all, " ")
}

// patternOf reads a path of a matcher. known is false for those with other signs than an asterisk at the end, such as
// placeholders and escapes.
func patternOf(path string) (p pattern, known bool) {
	text, prefix := strings.CutSuffix(strings.ToLower(path), "*")
	if strings.ContainsAny(text, `*?[\%{`) || strings.Contains(text, "//") || text != "" && text[0] != '/' {
		return pattern{}, false
	}
	if prefix && text == "/" {
		text = "" // every path begins with it
	}
	return pattern{text, prefix}, true
}

// covers reports whether p matches all that o matches.
func (p pattern) covers(o pattern) bool {
	if p.prefix {
		return strings.HasPrefix(o.text, p.text)
	}
	return p == o
}

func coveredBy(p pattern, list []pattern) bool {
	for _, o := range list {
		if o.covers(p) {
			return true
		}
	}
	return false
}

// intersect returns what matches one of each list.
func intersect(a, b []pattern) (both []pattern) {
	for _, p := range a {
		for _, o := range b {
			switch {
			case p.covers(o):
				both = append(both, o)
			case o.covers(p):
				both = append(both, p)
			}
		}
	}
	return both
}

// union is what requests that match have, as far as it is known.
type union struct {
	paths          []pattern // nil: any
	methods, hosts []string  // nil: any
	not            []pattern // paths that they do not have
	pinned         map[string]bool
	pure           bool // paths say all, so that each such request matches
}

// matched returns what requests have that match one of the sets.
func matched(sets caddyhttp.MatcherSets) union {
	var u union
	for i, set := range sets {
		one := matchedBySet(set)
		if i == 0 {
			u = one
			continue
		}
		// What is not the same in all sets is not known.
		u.paths, u.methods, u.hosts = either(u.paths, one.paths), either(u.methods, one.methods), either(u.hosts, one.hosts)
		u.not, u.pinned, u.pure = nil, nil, u.pure && one.pure
	}
	return u
}

func either[T any](a, b []T) []T {
	if a == nil || b == nil {
		return nil
	}
	return append(a[:len(a):len(a)], b...)
}

func matchedBySet(set caddyhttp.MatcherSet) union {
	u := union{pinned: make(map[string]bool)}
	for _, matcher := range set {
		switch m := matcher.(type) {
		case *caddyhttp.MatchPath:
			u.paths = pathsOf(*m)
			u.pure = u.paths != nil && len(set) == 1
		case *caddyhttp.MatchMethod:
			u.methods = *m
		case *caddyhttp.MatchHost:
			u.hosts = *m
		case *caddyhttp.MatchNot:
			for _, not := range m.MatcherSets {
				if one := matchedBySet(not); one.pure {
					u.not = append(u.not, one.paths...)
				}
			}
		case *caddyhttp.MatchHeader:
			for name, values := range *m {
				u.pin("http.request.header."+name, values)
			}
		case *caddyhttp.MatchQuery:
			for name, values := range *m {
				u.pin("http.request.uri.query."+name, values)
			}
		}
	}
	return u
}

// pin notes a placeholder that has one of some values.
func (u *union) pin(name string, values []string) {
	if len(values) > 0 && !strings.Contains(strings.Join(values, ""), "*") {
		u.pinned[strings.ToLower(name)] = true
	}
}

// pathsOf returns the patterns of a matcher; nil if one of them is not known.
func pathsOf(paths []string) (all []pattern) {
	for _, path := range paths {
		p, known := patternOf(path)
		if !known {
			return nil
		}
		all = append(all, p)
	}
	return all
}
