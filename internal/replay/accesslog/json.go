package accesslog

import (
	"strings"
	"time"
)

// result of reading a line.
type result uint8

const (
	request result = iota // the Line is a request
	other                 // a line of another logger, or none
	broken
)

// raw is what a line has before the unit of durations is known.
type raw struct {
	time     string // as written, without quotes
	duration string // as written, without quotes
	common   string // common_log of Caddy before 2.5
	logger   string
	message  string
	named    bool // the line names its logger
}

// parseJSON reads a line of Caddy's JSON. It returns why a line is broken.
func (p *parser) parseJSON(l *Line, s string) (result, string) {
	var r raw
	c := scanner{s: s}
	if why := p.members(l, &r, &c); why != "" {
		return broken, why
	}
	return p.finish(l, &r)
}

// members reads the members of the object at c into l and r.
func (p *parser) members(l *Line, r *raw, c *scanner) string {
	start := c.i
	if c.space() != '{' {
		return "it is no JSON object"
	}
	more, ok := c.open('}'), true
	for more {
		name, isName := c.name()
		if !isName || !p.value(l, r, c, name) {
			return "its JSON ends early or is malformed"
		}
		if more, ok = c.next('}'); !ok {
			return "its JSON ends early or is malformed"
		}
	}
	l.text = c.s[start:c.i]
	if c.space() != 0 {
		return "something follows its JSON"
	}
	return ""
}

// value reads the value of a member of a line. The first of several members with one name counts: Caddy writes its own
// before those of log_append.
func (p *parser) value(l *Line, r *raw, c *scanner, name string) bool {
	start := c.i
	if !c.skip() {
		return false
	}
	v := c.s[start:c.i]
	switch name {
	case "ts":
		set(&r.time, v)
	case "logger":
		set(&r.logger, v)
		r.named = true
	case "msg":
		set(&r.message, v)
	case "request":
		if l.request == "" && v[0] == '{' {
			l.request = v
			return p.readRequest(l, v)
		}
	case "user_id":
		l.take(&l.UserID, FieldUserID, v)
	case "duration":
		set(&r.duration, v)
	case "size":
		l.number(&l.Size, FieldSize, v)
	case "status":
		var n int64
		if l.number(&n, FieldStatus, v); l.Status == 0 && n < 1000 {
			l.Status = int(n)
		}
	case "common_log":
		set(&r.common, v)
	case "time", "timestamp", "@timestamp", "T":
		if r.time == "" {
			set(&r.time, v)
		}
	}
	return true
}

// set makes *to a string or a literal, unless it has one.
func set(to *string, v string) {
	if *to != "" {
		return
	}
	*to = bare(v)
}

// bare returns a string's text, or a literal as it is.
func bare(v string) string {
	if len(v) >= 2 && v[0] == '"' {
		return unquote(v[1 : len(v)-1])
	}
	return v
}

// take makes *to a string, unless l has f.
func (l *Line) take(to *string, f Field, v string) {
	if l.fields&f == 0 && v != "" && v[0] == '"' {
		*to = unquote(v[1 : len(v)-1])
		l.fields |= f
	}
}

// number makes *to a number that is not negative, unless l has f.
func (l *Line) number(to *int64, f Field, v string) {
	if l.fields&f != 0 {
		return
	}
	if n, _, _, ok := decimal(bare(v)); ok && n >= 0 {
		*to = n
		l.fields |= f
	}
}

// readRequest reads the object `request`.
func (p *parser) readRequest(l *Line, s string) bool {
	l.fields |= FieldTLS
	c := scanner{s: s}
	more, ok := c.open('}'), true
	for more {
		name, isName := c.name()
		start := c.i
		if !isName || !c.skip() {
			return false
		}
		v := c.s[start:c.i]
		switch name {
		case "remote_ip":
			l.take(&l.RemoteIP, FieldRemoteIP, v)
		case "remote_port":
			l.take(&l.RemotePort, FieldRemotePort, v)
		case "remote_addr": // before 2.5
			l.splitAddress(bare(v))
		case "client_ip":
			l.take(&l.ClientIP, FieldClientIP, v)
		case "proto":
			l.take(&l.Proto, FieldProto, v)
		case "method":
			l.take(&l.Method, FieldMethod, v)
		case "host":
			l.take(&l.Host, FieldHost, v)
		case "uri":
			l.take(&l.URI, FieldURI, v)
		case "headers":
			if l.headers == "" && v[0] == '{' {
				l.headers = v
			}
		case "tls":
			if v[0] == '{' {
				l.TLS = true
				if name, ok := member(v, "server_name"); ok {
					l.take(&l.ServerName, FieldServerName, name)
				}
			}
		}
		if more, ok = c.next('}'); !ok {
			return false
		}
	}
	return true
}

// splitAddress reads the address and port of a connection.
func (l *Line) splitAddress(address string) {
	i := strings.LastIndexByte(address, ':')
	if i < 0 || l.fields&FieldRemoteIP != 0 {
		return
	}
	l.RemoteIP, l.RemotePort = strings.Trim(address[:i], "[]"), address[i+1:]
	l.fields |= FieldRemoteIP | FieldRemotePort
}

// finish reads the times of a line, and sorts out lines that are no requests.
func (p *parser) finish(l *Line, r *raw) (result, string) {
	switch {
	case r.named && !isAccess(r.logger):
		return other, ""
	case l.request == "" && !r.named:
		return other, ""
	case l.request == "":
		return broken, "it has no member `request`; a filter that deletes it leaves nothing to replay"
	case !r.named && r.message != "" && r.message != "handled request" && r.message != "NOP":
		return other, ""
	case r.time == "":
		return broken, "it has no member `ts`; remove time_key from the log's format"
	}
	var ok bool
	if ok = l.time(r.time); !ok {
		return broken, "its time " + quoted(r.time) + " is in a format of its own; log with time_format unix_seconds_float or another word of Caddy's documentation"
	}
	l.Start = l.End
	if r.duration != "" {
		if l.Duration, ok = p.duration(r.duration); !ok || l.Duration < 0 {
			return broken, "its duration " + quoted(r.duration) + " cannot be read"
		}
		l.fields |= FieldDuration
		l.Start -= int64(l.Duration)
	}
	return request, ""
}

// isAccess reports whether a logger writes access logs: http.log.access, or a logger below it.
func isAccess(logger string) bool {
	const name = "http.log.access"
	return strings.HasPrefix(logger, name) && (len(logger) == len(name) || logger[len(name)] == '.')
}

// duration reads a duration in seconds with a fraction, in the unit of whole numbers, or in Go's notation.
func (p *parser) duration(s string) (time.Duration, bool) {
	whole, frac, fractional, ok := decimal(s)
	if !ok {
		d, err := time.ParseDuration(s)
		return d, err == nil
	}
	if p.unit == 0 {
		p.sample(whole, fractional)
		return 0, true
	}
	if fractional {
		return time.Duration(whole*1e9 + frac), whole < 9e9
	}
	return time.Duration(whole) * p.unit, p.unit == 1 || whole < 9e9
}

// quoted returns the beginning of s between quotes.
func quoted(s string) string {
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return `"` + s + `"`
}
