package accesslog

import (
	"net/textproto"
	"strings"
)

// redacted is what Caddy writes in place of credentials.
const redacted = "REDACTED"

// credentials are the fields of requests that Caddy redacts: since 2.5 with an empty array, later with a word.
var credentials = map[string]bool{"Authorization": true, "Cookie": true, "Proxy-Authorization": true, "Set-Cookie": true}

// Header returns the values of a field of the request's header. Combined logs know User-Agent and Referer.
func (l *Line) Header(name string) ([]string, Presence) {
	name = textproto.CanonicalMIMEHeaderKey(name)
	if l.Format == Combined {
		return l.combinedHeader(name)
	}
	if l.headers == "" {
		return nil, Unknown
	}
	v, ok := member(l.headers, name)
	if !ok {
		return nil, Absent
	}
	values := texts(v)
	switch {
	case len(values) == 0 && credentials[name], len(values) == 1 && values[0] == redacted:
		return nil, Redacted
	case len(values) == 0:
		return nil, Absent
	}
	return values, Present
}

// Headers calls each with all fields of the request's header, in the log's order, until each returns false.
func (l *Line) Headers(each func(name string, values []string) bool) {
	if l.Format == Combined {
		for _, name := range []string{"Referer", "User-Agent"} {
			if v, p := l.combinedHeader(name); p == Present && !each(name, v) {
				return
			}
		}
		return
	}
	c := scanner{s: l.headers}
	if c.space() != '{' || !c.open('}') {
		return
	}
	for {
		name, ok := c.name()
		start := c.i
		if !ok || !c.skip() || !each(unquote(name), texts(c.s[start:c.i])) {
			return
		}
		if more, ok := c.next('}'); !ok || !more {
			return
		}
	}
}

// Member returns a member of the line's JSON: strings without their quotes, everything else as it is written. Names of
// objects in objects are joined by ">", as in Caddy's filters: "request>tls>version". log_append adds members at the top.
func (l *Line) Member(path string) (string, Presence) {
	if l.Format == Combined {
		return "", Unknown
	}
	v := l.text
	for path != "" {
		name, rest, _ := strings.Cut(path, ">")
		var ok bool
		if v, ok = member(v, name); !ok {
			return "", Unknown
		}
		path = rest
	}
	if v = bare(v); v == redacted {
		return "", Redacted
	}
	return v, Present
}

// texts returns the strings of an array, or the only one.
func texts(v string) []string {
	switch {
	case v == "":
		return nil
	case v[0] == '"':
		return []string{bare(v)}
	case v[0] != '[':
		return nil
	}
	var all []string
	c := scanner{s: v}
	for more, ok := c.open(']'), true; more && ok; more, ok = c.next(']') {
		c.space()
		start := c.i
		if !c.skip() {
			return nil
		}
		all = append(all, bare(c.s[start:c.i]))
	}
	return all
}
