package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// object decodes an object with encoding/json. The first of several members with one name counts.
func object(text string) map[string]json.RawMessage {
	d := json.NewDecoder(strings.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	all := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		if _, ok := all[name.(string)]; !ok {
			all[name.(string)] = value
		}
	}
	return all
}

// FuzzJSON compares what is read of valid JSON with encoding/json.
func FuzzJSON(f *testing.F) {
	f.Add(caddyLine)
	f.Add(caddyAt("1700000000", `"1.5s"`))
	f.Add(`{"ts":"2024-01-01T00:00:00Z","msg":"\ud83d\ude00 \ud83d","request":{"headers":{"A":"b","C":["\u0041",null,3]},"uri":"\/","tls":{}}}`)
	f.Add(` { "a" : [ { } , [ ] , "]" ] , "request" : { } , "request" : { "uri" : "/" } , "status" : -1.5e3 } `)
	f.Add(`{"request":{"uri":"\\"},"x":"\"}"}`)
	f.Fuzz(func(t *testing.T, line string) {
		var l Line
		p := parser{unit: time.Second}
		res, why := p.parseJSON(&l, line)
		if (res == broken) != (why != "") {
			t.Fatalf("%v: %q", res, why)
		}
		if !json.Valid([]byte(line)) || !utf8.ValidString(line) || strings.TrimLeft(line, " \t\r\n") == "" || strings.TrimLeft(line, " \t\r\n")[0] != '{' {
			return
		}
		top := object(line)
		request := top["request"]
		if len(request) == 0 || request[0] != '{' {
			return
		}
		for name, raw := range top {
			want := string(raw)
			if raw[0] == '"' {
				if err := json.Unmarshal(raw, &want); err != nil {
					t.Fatal(err)
				}
			}
			if got, presence := l.Member(name); !strings.Contains(name, ">") && name != "" && (presence == Unknown || presence == Present && got != want) {
				t.Fatalf("member %q: %v %q, want %q", name, presence, got, want)
			}
		}
		if res == broken {
			return // for the time or the duration: members were read
		}
		inside := object(string(request))
		for name, got := range map[string]string{"uri": l.URI, "host": l.Host, "method": l.Method, "proto": l.Proto, "client_ip": l.ClientIP} {
			var want string
			if raw := inside[name]; len(raw) > 0 && raw[0] == '"' {
				if err := json.Unmarshal(raw, &want); err != nil {
					t.Fatal(err)
				}
			}
			if got != want {
				t.Fatalf("%s: %q, want %q", name, got, want)
			}
		}
		if headers := inside["headers"]; len(headers) > 0 && headers[0] == '{' {
			n := 0
			l.Headers(func(string, []string) bool { n++; return true })
			if want := object(string(headers)); n < len(want) {
				t.Fatalf("%d headers, want %d", n, len(want))
			}
		}
	})
}

// FuzzLine reads any text as a log: it never panics, counts all lines, and reports what it cannot read.
func FuzzLine(f *testing.F) {
	f.Add(caddyLine + "\n" + caddyLine[:100])
	f.Add("2024/03/09 16:05:06.789\tinfo\thttp.log.access\thandled request\t{\"request\": {}}\nx\ty\n")
	f.Add(`1.2.3.4 - - [01/May/2024:12:30:00 +0000] "GET /\x22 HTTP/1.1" 200 5 "-" "a\"b"` + "\n[]\n\"\n")
	f.Add(`0  -[01/MAY/0000:00:00:00 +0000]"00"000 000000`)
	f.Add(`0  -[01/Jan/1970:00:00:00 +0100]"00"000 000000`)
	f.Fuzz(func(t *testing.T, text string) {
		c := chunk{text: text, unit: unitOf(text), unended: true}
		c.parse(new(parser), nil)
		cut := int64(0)
		if c.truncated {
			cut = 1
		}
		if int64(len(c.lines))+c.other+c.broken+cut != c.filled || c.filled > c.all {
			t.Fatalf("%d requests, %d others, %d broken, %d cut, of %d and %d lines", len(c.lines), c.other, c.broken, cut, c.filled, c.all)
		}
		for i := range c.lines {
			l := &c.lines[i]
			l.Header("User-Agent")
			l.Header("Cookie")
			l.Headers(func(string, []string) bool { return true })
			l.Member("request>tls>version")
			if l.Start != l.End-int64(l.Duration) || l.End < 0 || l.Status > 999 || l.Size < 0 {
				t.Fatalf("%+v", l)
			}
		}
	})
}

// nginxEscapes writes a text as nginx does, apacheEscapes as Apache does.
func nginxEscapes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\x%02X`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func apacheEscapes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// FuzzCombined writes requests as nginx and Apache do, and reads the same again.
func FuzzCombined(f *testing.F) {
	f.Add("/a?b=\"c\\", "anna", "https://example.com/", "curl/8 \"x\"\xff\n", int64(1714566600), 200)
	f.Add("/ HTTP/1.1", "a [b]", "-", "", int64(0), 0)
	f.Fuzz(func(t *testing.T, uri, user, referer, agent string, at int64, status int) {
		if uri == "" || strings.ContainsAny(uri, " ") || at < 0 || at > 4e9 || status < 0 || status > 999 || user == "-" || strings.TrimSpace(user) != user || user == "" || agent == "" || referer == "" || referer == "-" || agent == "-" {
			return
		}
		for _, escapes := range []func(string) string{nginxEscapes, apacheEscapes} {
			line := fmt.Sprintf(`2001:db8::1 - %s [%s] "GET %s HTTP/1.1" %d 17 "%s" "%s"`, escapes(user), time.Unix(at, 0).UTC().Format(layout), escapes(uri), status, escapes(referer), escapes(agent))
			var l Line
			var p parser
			if res, why := p.parse(&l, line); res != request {
				t.Fatalf("%s: %s", line, why)
			}
			if l.URI != uri || l.UserID != user || l.End != at*1e9 || l.Status != status || l.RemoteIP != "2001:db8::1" || l.Proto != "HTTP/1.1" || l.Size != 17 {
				t.Fatalf("%s: %+v", line, l)
			}
			for name, want := range map[string]string{"User-Agent": agent, "Referer": referer} {
				if v, p := l.Header(name); p != Present || v[0] != want {
					t.Fatalf("%s: %q %v", name, v, p)
				}
			}
		}
	})
}

// FuzzConsole reads fields in columns and in JSON, and compares.
func FuzzConsole(f *testing.F) {
	f.Add("1700000000.25", `{"request":{"uri":"/\t"},"duration":0.5}`)
	f.Add("2024/03/09 16:05:06", `{"request": {"uri": "\u0009{"}, "status": 404}`)
	f.Fuzz(func(t *testing.T, at, fields string) {
		quotedTime, err := json.Marshal(at)
		if err != nil || !strings.HasPrefix(fields, "{") || strings.Contains(at, "\t") || !json.Valid([]byte(fields)) || !utf8.ValidString(at) || strings.HasPrefix(at, "{") {
			return
		}
		if o := object(fields); o["logger"] != nil || o["msg"] != nil || o["ts"] != nil || o["time"] != nil || o["timestamp"] != nil || o["@timestamp"] != nil || o["T"] != nil || len(o) == 0 {
			return
		}
		var a, b Line
		p := parser{unit: time.Second}
		resA, _ := p.parse(&a, at+"\tinfo\thttp.log.access\thandled request\t"+fields)
		resB, _ := p.parse(&b, `{"ts":`+string(quotedTime)+`,"logger":"http.log.access","msg":"handled request",`+strings.TrimLeft(fields[1:], " \t\r\n"))
		if resA != resB || a.Start != b.Start || a.End != b.End || a.URI != b.URI || a.Status != b.Status || a.fields != b.fields {
			t.Fatalf("%v %+v\n%v %+v", resA, a, resB, b)
		}
	})
}

// FuzzTime compares numbers with strconv, and times in Caddy's formats with package time.
func FuzzTime(f *testing.F) {
	f.Add("1700000000.123456789", int64(1_700_000_000_123_456_789))
	f.Add("-0.5e-3", int64(0))
	f.Add("00.", int64(1))
	f.Fuzz(func(t *testing.T, text string, ns int64) {
		if whole, frac, _, ok := decimal(text); ok && len(text) < 30 {
			want, err := strconv.ParseFloat(strings.TrimSuffix(text, "."), 64)
			if got := float64(whole) + float64(frac)/1e9; err != nil || math.Abs(got-want) > 1e-9+math.Abs(want)*1e-15 {
				t.Fatalf("%q is %g, want %g: %v", text, got, want, err)
			}
		}
		var l Line
		l.time(text)
		if ns < 3e17 || ns > 7e18 {
			return
		}
		at := time.Unix(0, ns).UTC()
		for layout, keeps := range map[string]time.Duration{
			"2006-01-02T15:04:05.000Z0700": time.Millisecond, time.RFC3339: time.Second, time.RFC3339Nano: 1,
			"2006/01/02 15:04:05": time.Second, "2006/01/02 15:04:05.000": time.Millisecond, "2006/01/02 15:04:05.000000000": 1, layout: time.Second,
		} {
			var l Line
			if s := at.Format(layout); !l.time(s) || l.End != at.Truncate(keeps).UnixNano() {
				t.Fatalf("%s: %d, want %d", s, l.End, at.Truncate(keeps).UnixNano())
			}
		}
		for _, s := range []string{fmt.Sprintf("%d.%09d", ns/1e9, ns%1e9), fmt.Sprintf("%d.%06d", ns/1e6, ns%1e6), fmt.Sprint(ns)} {
			var l Line
			if !l.time(s) || l.End != ns {
				t.Fatalf("%s: %d, want %d", s, l.End, ns)
			}
		}
	})
}

// FuzzUnquote compares with encoding/json.
func FuzzUnquote(f *testing.F) {
	f.Add(`\u00e9\ud83d\ude00\ud83d\n\/x`)
	f.Add(`\ude00\ud83dx\ud83d\ud83d\ude00`)
	f.Fuzz(func(t *testing.T, raw string) {
		var want string
		if !utf8.ValidString(raw) || json.Unmarshal(bytes.Join([][]byte{[]byte(`"`), []byte(raw), []byte(`"`)}, nil), &want) != nil {
			unquote(raw)
			return
		}
		if got := unquote(raw); got != want {
			t.Fatalf("%q: %q, want %q", raw, got, want)
		}
	})
}
