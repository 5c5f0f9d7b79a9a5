package accesslog

import (
	"strings"
	"time"
)

// layout of times in common and combined logs: [02/Jan/2006:15:04:05 -0700].
const layout = "02/Jan/2006:15:04:05 -0700"

// parseCombined reads a line of nginx or Apache:
//
//	[vhost[:port]] address ident user [time] "request" status size ["referer" "user agent" …]
//
// What follows the user agent is ignored.
func (p *parser) parseCombined(l *Line, s string) (result, string) {
	open := findTime(s)
	if open < 0 {
		return broken, "it is neither Caddy's JSON nor in the common or combined format"
	}
	l.Precision = time.Second
	var ok bool
	if l.End, ok = p.commonTime(s[open+1 : open+1+len(layout)]); !ok {
		return broken, "its time " + quoted(s[open+1:open+1+len(layout)]) + " cannot be read"
	}
	l.Start = l.End
	if !l.readClient(strings.TrimRight(s[:open], " ")) {
		return broken, "three columns are missing before its time: address, ident, user"
	}
	rest := strings.TrimLeft(s[open+len(layout)+2:], " ")
	line, rest, ok := quotes(rest)
	if !ok {
		return broken, "its request has no closing quote"
	}
	l.readRequestLine(line)
	status, rest, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	n, _, fractional, ok := decimal(status)
	if !ok || fractional || n < 0 || n > 999 {
		return broken, "its status " + quoted(status) + " is no number"
	}
	l.Status = int(n)
	l.fields |= FieldStatus
	size, rest, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	if size != "-" {
		l.number(&l.Size, FieldSize, size)
	} else {
		l.fields |= FieldSize
	}
	if l.referer, rest, ok = quotes(strings.TrimLeft(rest, " ")); ok {
		l.agent, _, _ = quotes(strings.TrimLeft(rest, " "))
	}
	l.text = s
	return request, ""
}

// findTime returns where the bracket before a time is, -1 if there is no time.
func findTime(s string) int {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], '[')
		if i < 0 {
			return -1
		}
		i += from
		if end := i + 1 + len(layout); end < len(s) && s[end] == ']' && s[i+3] == '/' && s[i+7] == '/' && s[i+12] == ':' {
			return i
		}
		from = i + 1
	}
}

// commonTime reads a time of the layout. It keeps the day it read last: neighbours share it.
func (p *parser) commonTime(s string) (int64, bool) {
	if s[:11] != p.day || s[20:] != p.zone {
		t, err := time.Parse(layout, s[:11]+":00:00:00"+s[20:])
		if err != nil || !isNear(t) {
			return 0, false
		}
		p.day, p.zone, p.midnight = s[:11], s[20:], t.Unix()
	}
	h, ok1 := twoDigits(s[12:])
	m, ok2 := twoDigits(s[15:])
	sec, ok3 := twoDigits(s[18:])
	if !ok1 || !ok2 || !ok3 || h > 23 || m > 59 || sec > 60 || s[11] != ':' || s[14] != ':' || s[17] != ':' {
		return 0, false
	}
	return (p.midnight + h*3600 + m*60 + sec) * int64(time.Second), true
}

// twoDigits reads a number of two digits.
func twoDigits(s string) (int64, bool) {
	a, b := s[0]-'0', s[1]-'0'
	return int64(a)*10 + int64(b), a < 10 && b < 10
}

// readClient reads the columns before the time. A user may have spaces; a virtual host comes before an address.
func (l *Line) readClient(s string) bool {
	first, rest, ok := strings.Cut(s, " ")
	if !ok {
		return false
	}
	if second, more, ok := strings.Cut(rest, " "); ok && !isAddress(first) && isAddress(second) {
		l.Host = first
		l.fields |= FieldHost
		first, rest = second, more
	}
	_, user, ok := strings.Cut(rest, " ")
	if !ok {
		return false
	}
	l.RemoteIP = first
	l.fields |= FieldRemoteIP | FieldUserID
	if user = strings.TrimLeft(user, " "); user != "-" {
		l.UserID = unescape(user)
	}
	return true
}

// isAddress reports whether s looks like an address of IPv4 or IPv6.
func isAddress(s string) bool {
	dots, colons := 0, 0
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b == '.':
			dots++
		case b == ':':
			colons++
		case hexDigit(b) < 0:
			return false
		case b > '9' && colons == 0 && dots > 0: // a letter of a host
			return false
		}
	}
	return (dots == 3 && colons == 0) || colons >= 2
}

// readRequestLine reads a request line. A broken one leaves the request without method, path and protocol.
func (l *Line) readRequestLine(s string) {
	method, rest, ok := strings.Cut(s, " ")
	if !ok || !isToken(method) {
		return
	}
	i := strings.LastIndexByte(rest, ' ')
	if i < 0 || !strings.HasPrefix(rest[i+1:], "HTTP/") {
		if !strings.HasPrefix(rest, "/") {
			return
		}
		i = len(rest) // HTTP/0.9
	} else {
		l.Proto = rest[i+1:]
		l.fields |= FieldProto
	}
	l.Method, l.URI = method, unescape(rest[:i])
	l.fields |= FieldMethod | FieldURI
}

// isToken reports whether s may be a method: letters, digits, and a few signs.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		if b := s[i]; b <= ' ' || b >= 0x7f || b == '"' || b == '\\' || b == '/' || b == ':' {
			return false
		}
	}
	return s != ""
}

// quotes reads a text between quotes at the beginning of s. A backslash escapes the byte after it.
func quotes(s string) (inside, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return s[1:i], s[i+1:], true
		case '\\':
			i++
		}
	}
	return "", s, false
}

// unescape undoes what nginx (\xHH) and Apache (\xhh, \", \\, \n and others) do to bytes that could break a line.
func unescape(s string) string {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		i++
		if s[i] == 'x' && i+2 < len(s) && hexDigit(s[i+1]) >= 0 && hexDigit(s[i+2]) >= 0 {
			b = append(b, byte(hexDigit(s[i+1])<<4|hexDigit(s[i+2]))) // #nosec G115 -- two digits
			i += 2
			continue
		}
		if j := strings.IndexByte("btnvfr", s[i]); j >= 0 {
			b = append(b, "\b\t\n\v\f\r"[j])
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

// combinedHeader returns one of the two fields of the header that the combined format has.
func (l *Line) combinedHeader(name string) ([]string, Presence) {
	v := ""
	switch name {
	case "User-Agent":
		v = l.agent
	case "Referer":
		v = l.referer
	default:
		return nil, Unknown
	}
	switch v {
	case "":
		return nil, Unknown
	case "-":
		return nil, Absent
	}
	return []string{unescape(v)}, Present
}
