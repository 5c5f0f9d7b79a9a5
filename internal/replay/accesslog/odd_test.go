package accesslog

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// caddyAt returns a line that ended at a time, which is written as it is, and took a duration.
func caddyAt(ts, duration string) string {
	return `{"level":"info","ts":` + ts + `,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"1.2.3.4","method":"GET","uri":"/"},"duration":` + duration + `,"status":200}` + "\n"
}

func TestTimes(t *testing.T) {
	at := time.Date(2024, 3, 9, 16, 5, 6, 123456789, time.UTC)
	berlin := time.FixedZone("", 3600)
	for _, c := range []struct {
		word, ts string
		keeps    time.Duration
	}{
		{"unix_seconds_float", fmt.Sprintf("%d.123456789", at.Unix()), 1},
		{"unix_seconds_float", fmt.Sprint(at.Unix()), time.Second},
		{"with an exponent", fmt.Sprintf("%.9fe9", float64(at.Unix())/1e9), time.Second},
		{"unix_milli_float", fmt.Sprintf("%d.456789", at.UnixMilli()), 1},
		{"unix_nano", fmt.Sprint(at.UnixNano()), 1},
		{"iso8601", at.Format(`"2006-01-02T15:04:05.000Z0700"`), time.Millisecond},
		{"iso8601 local", at.In(berlin).Format(`"2006-01-02T15:04:05.000Z0700"`), time.Millisecond},
		{"rfc3339", at.Format(`"` + time.RFC3339 + `"`), time.Second},
		{"rfc3339 local", at.In(berlin).Format(`"` + time.RFC3339 + `"`), time.Second},
		{"rfc3339_nano", at.Format(`"` + time.RFC3339Nano + `"`), 1},
		{"rfc3339_nano local", at.In(berlin).Format(`"` + time.RFC3339Nano + `"`), 1},
		{"wall", at.Format(`"2006/01/02 15:04:05"`), time.Second},
		{"wall_milli", at.Format(`"2006/01/02 15:04:05.000"`), time.Millisecond},
		{"wall_nano", at.Format(`"2006/01/02 15:04:05.000000000"`), 1},
		{"common_log", at.Format(`"02/Jan/2006:15:04:05 -0700"`), time.Second},
		{"common_log local", at.In(berlin).Format(`"02/Jan/2006:15:04:05 -0700"`), time.Second},
	} {
		lines, r := readAll(t, Options{}, caddyAt(c.ts, "0.5"))
		if r.Err() != nil || lines[0].End != at.Truncate(c.keeps).UnixNano() || lines[0].End-lines[0].Start != 5e8 {
			t.Errorf("%s: %s: %v, %+v", c.word, c.ts, r.Err(), lines)
			continue
		}
		if whole := strings.Contains(c.ts, ":") && c.keeps == time.Second; lines[0].WholeSeconds() != whole {
			t.Errorf("%s: whole seconds %v", c.word, lines[0].WholeSeconds())
		}
	}
	for _, ts := range []string{`"Mon Jan  2 15:04:05 2006"`, `"yesterday"`, "-5", "1e400", "true", `""`, "50000000000"} {
		_, r := readAll(t, Options{}, caddyAt(ts, "0.5"))
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "a.log:1: ") || !strings.Contains(err.Error(), "time") {
			t.Errorf("%s: %v", ts, err)
		}
	}
}

func TestDurations(t *testing.T) {
	for _, c := range []struct {
		first, second string
		want          [2]time.Duration
	}{
		{"0.25", "1", [2]time.Duration{250 * time.Millisecond, time.Second}},
		{"0", "0.000000001", [2]time.Duration{0, 1}},
		{"250", "1000", [2]time.Duration{250 * time.Millisecond, time.Second}}, // milliseconds
		{"0", "3", [2]time.Duration{0, 3 * time.Millisecond}},
		{"25000", "1000000", [2]time.Duration{25 * time.Microsecond, time.Millisecond}}, // nanoseconds
		{`"1.5ms"`, `"2m0s"`, [2]time.Duration{1500 * time.Microsecond, 2 * time.Minute}},
		{"1e-3", "0.5", [2]time.Duration{time.Millisecond, 500 * time.Millisecond}},
	} {
		lines, r := readAll(t, Options{}, caddyAt("1700000000.5", c.first)+caddyAt("1700000001.5", c.second))
		if r.Err() != nil {
			t.Errorf("%s: %v", c.first, r.Err())
			continue
		}
		if got := [2]time.Duration{lines[0].Duration, lines[1].Duration}; got != c.want || !lines[0].Has(FieldDuration) || lines[0].Start != lines[0].End-int64(got[0]) {
			t.Errorf("%s, %s: %v", c.first, c.second, got)
		}
	}
	if _, r := readAll(t, Options{}, caddyAt("1700000000", `"soon"`)); r.Err() == nil || !strings.Contains(r.Err().Error(), "duration") {
		t.Error(r.Err())
	}
}

// TestVersions reads lines of several versions of Caddy, and what filters leave of them.
func TestVersions(t *testing.T) {
	const begin = `{"level":"info","ts":1600000000.5,"logger":"http.log.access.log1","msg":"handled request",`
	for name, c := range map[string]struct {
		line string
		want func(*Line) bool
	}{
		"2.4": {begin + `"request":{"remote_addr":"[2001:db8::1]:443","proto":"HTTP/1.1","method":"GET","host":"a","uri":"/","headers":{}},"common_log":"- - -","duration":0.5,"size":1,"status":200}`,
			func(l *Line) bool {
				return l.RemoteIP == "2001:db8::1" && l.RemotePort == "443" && !l.Has(FieldClientIP) && l.Has(FieldTLS) && !l.TLS
			}},
		"2.5": {begin + `"request":{"remote_ip":"::1","remote_port":"5","proto":"HTTP/1.1","method":"GET","host":"a","uri":"/","headers":{"Cookie":[],"Accept":[]}},"user_id":"","duration":0.5,"size":1,"status":0}`,
			func(l *Line) bool {
				_, cookie := l.Header("cookie")
				_, accept := l.Header("accept")
				return l.RemoteIP == "::1" && !l.Has(FieldClientIP) && l.Has(FieldUserID) && l.Has(FieldStatus) && cookie == Redacted && accept == Absent
			}},
		"headers as strings": {begin + `"request":{"headers":{"Accept":"*/*"}}}`,
			func(l *Line) bool {
				v, p := l.Header("Accept")
				return p == Present && slices.Equal(v, []string{"*/*"})
			}},
		"deleted": {begin + `"request":{"method":"GET"}}`,
			func(l *Line) bool {
				_, p := l.Header("Accept")
				return p == Unknown && l.Has(FieldMethod) && !l.Has(FieldURI) && !l.Has(FieldStatus) && !l.Has(FieldDuration) && l.Start == l.End
			}},
		"replaced": {begin + `"request":{"uri":"REDACTED","remote_ip":"10.0.0.0","headers":{"Accept":["REDACTED"]}},"user_id":"REDACTED","status":"REDACTED","size":-1}`,
			func(l *Line) bool {
				_, header := l.Header("Accept")
				_, user := l.Member("user_id")
				return header == Redacted && user == Redacted && l.URI == "REDACTED" && !l.Has(FieldStatus) && !l.Has(FieldSize)
			}},
		"log_append": {begin + `"request":{"method":"GET"},"status":200,"duration":0.5,"status":"mine","customer":{"id":7},"tags":["a","b"]}`,
			func(l *Line) bool {
				id, _ := l.Member("customer>id")
				tags, _ := l.Member("tags")
				return l.Status == 200 && id == "7" && tags == `["a","b"]`
			}},
		"without a logger": {`{"ts":1600000000,"msg":"handled request","request":{"method":"GET"}}`, func(l *Line) bool { return l.Method == "GET" }},
		"time and spaces": {` { "time" : "2024-01-01T00:00:00Z" , "logger" : "http.log.access" , "request" : { "method" : "GET" } } `,
			func(l *Line) bool { return l.Method == "GET" && l.End == 1704067200e9 }},
		"escaped": {`{"\u0074s":1,"logger":"http.log.access","request":{"uri":"\/\u00e9\ud83d\ude00\n\\"},"ts":1600000000}`,
			func(l *Line) bool { return l.URI == "/é😀\n\\" }},
	} {
		lines, r := readAll(t, Options{}, c.line)
		if r.Err() != nil || !c.want(&lines[0]) {
			t.Errorf("%s: %v: %+v", name, r.Err(), lines)
		}
	}
}

func TestConsole(t *testing.T) {
	fields := `{"request": {"remote_ip": "1.2.3.4", "method": "GET", "uri": "/a\tb", "headers": {"Accept": ["*/*"]}}, "duration": 0.25, "status": 200}`
	for _, line := range []string{
		"2024/03/09 16:05:06.789\tinfo\thttp.log.access.log0\thandled request\t" + fields,
		"2024/03/09 16:05:06.789\t\x1b[34mINFO\x1b[0m\thttp.log.access\thandled request\t" + fields,
		"1710000306.789\tinfo\thttp.log.access\tcaddyhttp/server.go:1\thandled request\t" + fields,
		"2024-03-09T16:05:06.789Z\thandled request\t" + fields,
	} {
		lines, r := readAll(t, Options{}, line+"\n")
		if r.Err() != nil {
			t.Error(r.Err())
			continue
		}
		l := lines[0]
		if accept, _ := l.Header("Accept"); l.Format != Console || l.Start != 1710000306539e6 || l.URI != "/a\tb" || l.Status != 200 || len(accept) != 1 {
			t.Errorf("%q: %+v", line, l)
		}
	}
	if _, r := readAll(t, Options{}, "2024/03/09 16:05:06.789\tinfo\tadmin\tadmin endpoint started\t{\"address\": \"localhost:2019\"}\n"+
		"2024/03/09 16:05:06.789\tinfo\tserving initial configuration\n"); r.Report().Other != 2 {
		t.Errorf("%+v", r.Report())
	}
}

func TestCombinedLines(t *testing.T) {
	at := time.Date(2024, 5, 1, 12, 30, 0, 0, time.UTC).UnixNano()
	for line, want := range map[string]Line{
		`1.2.3.4 - - [01/May/2024:12:30:00 +0000] "GET / HTTP/1.1" 200 5`:                                  {RemoteIP: "1.2.3.4", Method: "GET", URI: "/", Proto: "HTTP/1.1", Status: 200, Size: 5},
		`1.2.3.4 - - [01/May/2024:12:30:00 +0000] "GET / HTTP/1.1" 304 - "-" "-"`:                          {RemoteIP: "1.2.3.4", Method: "GET", URI: "/", Proto: "HTTP/1.1", Status: 304},
		`example.com:443 1.2.3.4 - anna [01/May/2024:14:30:00 +0200] "POST /x HTTP/2.0" 201 7 "-" "a" 0.1`: {Host: "example.com:443", RemoteIP: "1.2.3.4", UserID: "anna", Method: "POST", URI: "/x", Proto: "HTTP/2.0", Status: 201, Size: 7},
		`::1 - anna of [b] [01/May/2024:12:30:00 +0000] "GET /a b c HTTP/1.1" 400 0`:                       {RemoteIP: "::1", UserID: "anna of [b]", Method: "GET", URI: "/a b c", Proto: "HTTP/1.1", Status: 400},
		`client.example - - [01/May/2024:12:30:00 +0000] "GET /old" 200 5`:                                 {RemoteIP: "client.example", Method: "GET", URI: "/old", Status: 200, Size: 5},
		`1.2.3.4 - - [01/May/2024:12:30:00 +0000] "\x16\x03\x01" 400 157 "-" "-"`:                          {RemoteIP: "1.2.3.4", Status: 400, Size: 157},
		`1.2.3.4 - - [01/May/2024:12:30:00 +0000] "-" 408 -`:                                               {RemoteIP: "1.2.3.4", Status: 408},
		`1.2.3.4 - - [01/May/2024:12:30:00 +0000] "" 400 0`:                                                {RemoteIP: "1.2.3.4", Status: 400},
		`1.2.3.4 - a\"b [01/May/2024:12:30:00 +0000] "GET /\"\\\x41\xe9 HTTP/1.1" 200 1`:                   {RemoteIP: "1.2.3.4", UserID: `a"b`, Method: "GET", URI: "/\"\\A\xe9", Proto: "HTTP/1.1", Status: 200, Size: 1},
		`1.2.3.4 - - [01/May/2024:07:00:00 -0530] "OPTIONS * HTTP/1.1" 200 1`:                              {RemoteIP: "1.2.3.4", Method: "OPTIONS", URI: "*", Proto: "HTTP/1.1", Status: 200, Size: 1},
	} {
		lines, r := readAll(t, Options{}, line)
		if r.Err() != nil {
			t.Errorf("%s: %v", line, r.Err())
			continue
		}
		l := lines[0]
		got := Line{Host: l.Host, RemoteIP: l.RemoteIP, UserID: l.UserID, Method: l.Method, URI: l.URI, Proto: l.Proto, Status: l.Status, Size: l.Size}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) || l.End != at || !l.WholeSeconds() || l.Format != Combined {
			t.Errorf("%s:\n got %+v\nwant %+v", line, got, want)
		}
		if l.Has(FieldMethod) != (l.Method != "") || l.Has(FieldHost) != (l.Host != "") {
			t.Errorf("%s: fields %b", line, l.fields)
		}
	}
	for _, line := range []string{
		`1.2.3.4 - [01/May/2024:12:30:00 +0000] "GET / HTTP/1.1" 200 5`,
		`1.2.3.4 - - [01/Mai/2024:12:30:00 +0000] "GET / HTTP/1.1" 200 5`,
		`1.2.3.4 - - [01/May/2024:25:30:00 +0000] "GET / HTTP/1.1" 200 5`,
		`1.2.3.4 - - [01/May/2024:12:30:00 +0000] "GET / HTTP/1.1 200 5`,
		`1.2.3.4 - - [01/May/2024:12:30:00 +0000] "GET / HTTP/1.1" OK 5`,
		`1.2.3.4 - - [01/May/2024:12:30:00 +0000] GET / HTTP/1.1 200 5`,
		`1.2.3.4 - - 01/May/2024:12:30:00 "GET / HTTP/1.1" 200 5`,
	} {
		if lines, r := readAll(t, Options{}, line+"\n"); r.Err() == nil || !strings.Contains(r.Err().Error(), "a.log:1: ") {
			t.Errorf("%s: %v, %+v", line, r.Err(), lines)
		}
	}
}

// compressed returns text in a format.
func compressed(t *testing.T, format, text string) string {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch format {
	case "gzip":
		z := gzip.NewWriter(&b)
		_, err = z.Write([]byte(text))
		err = cmp.Or(err, z.Close())
	case "zstd":
		z, err2 := zstd.NewWriter(&b)
		if err2 != nil {
			t.Fatal(err2)
		}
		_, err = z.Write([]byte(text))
		err = cmp.Or(err, z.Close())
	default:
		return text
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// seconds returns lines at whole seconds from one to another.
func seconds(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(caddyAt(fmt.Sprint(1_700_000_000+i), "0"))
	}
	return b.String()
}

// TestFiles merges rotated and parallel files in several formats by time.
func TestFiles(t *testing.T) {
	old, middle, now := compressed(t, "zstd", seconds(0, 5000)), compressed(t, "gzip", seconds(5000, 10000)), seconds(10000, 12000)
	other := seconds(7000, 11000)
	combined := `1.2.3.4 - - [` + time.Unix(1_700_000_000+7500, 0).UTC().Format(layout) + `] "GET / HTTP/1.1" 200 5` + "\n"
	lines, r := readAll(t, Options{Workers: 3}, now, other, old, combined, middle)
	if r.Err() != nil || len(lines) != 12000+4000+1 {
		t.Fatal(len(lines), r.Err())
	}
	if !slices.IsSortedFunc(lines, func(a, b Line) int { return cmp.Compare(a.End, b.End) }) {
		t.Error("not in the order of time")
	}
	for i := range lines {
		if l := &lines[i]; strings.HasSuffix(l.Source, "e.log") && l.End/1e9 != 1_700_000_000+5000+l.Number-1 {
			t.Fatalf("%s:%d: at %d", l.Source, l.Number, l.End)
		}
	}
	if rep := r.Report(); rep.ByFormat[Combined] != 1 || rep.ByFormat[JSON] != 16000 || rep.Whole != 1 || rep.Bytes != int64(len(old)+len(middle)+len(now)+len(other)+len(combined)) {
		t.Errorf("%+v", rep)
	}
	if p := r.Progress(); p.Bytes != p.Total || p.Lines != 16001 {
		t.Errorf("%+v", p)
	}
}

func TestStdin(t *testing.T) {
	for _, format := range []string{"plain", "gzip", "zstd"} {
		r, err := Open([]string{"-"}, Options{Stdin: strings.NewReader(compressed(t, format, seconds(0, 3000)))})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range r.All() {
			n++
		}
		if r.Err() != nil || n != 3000 {
			t.Errorf("%s: %d, %v", format, n, r.Err())
		}
	}
	if _, err := Open([]string{"-"}, Options{}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"no such file", t.TempDir()} {
		if _, err := Open([]string{name}, Options{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Error(err)
		}
	}
}

func TestTruncated(t *testing.T) {
	text := seconds(0, 3000)
	z := compressed(t, "gzip", text)
	for name, c := range map[string]struct {
		text  string
		least int
	}{
		"within a line":             {text[:len(text)-20], 2999},
		"within a line of combined": {`1.2.3.4 - - [01/May/2024:12:30:00 +0000] "GET / HTTP/1.1" 200 5` + "\n1.2.3.4 - - [01/Ma", 1},
		"gzip":                      {z[:len(z)/2], 500},
		"end of gzip":               {z[:len(z)-8], 3000},
		"zstd":                      {compressed(t, "zstd", text+strings.Repeat("x", 1000))[:2000], 0},
	} {
		lines, r := readAll(t, Options{}, c.text)
		if rep := r.Report(); len(lines) < c.least || len(rep.Truncated) != 1 || rep.Broken != 0 || (r.Err() != nil && c.least > 0) {
			t.Errorf("%s: %d lines, %v, %+v", name, len(lines), r.Err(), rep)
		}
	}
	if lines, r := readAll(t, Options{}, strings.TrimSuffix(text, "\n")); len(lines) != 3000 || len(r.Report().Truncated) != 0 {
		t.Error("the last line needs no end")
	}
	damaged := []byte(z)
	damaged[len(z)/2] ^= 0xff
	if _, r := readAll(t, Options{}, string(damaged)); r.Err() == nil || !strings.Contains(r.Err().Error(), "a.log: ") {
		t.Error(r.Err())
	}
}

func TestBroken(t *testing.T) {
	good := seconds(0, 1000)
	cut := len(good)/2 + 20
	lines, r := readAll(t, Options{}, good[:cut]+"\n{\"level\n\nno log\r\n"+good[cut:])
	rep := r.Report()
	if r.Err() != nil || len(lines) != 999 || rep.Broken != 4 || len(rep.First) != 3 || rep.First[0].Number != 500+1 {
		t.Fatalf("%d, %v, %+v", len(lines), r.Err(), rep)
	}
	if got := rep.First[2].String(); !strings.HasSuffix(got, "a.log:504: it is neither Caddy's JSON nor in the common or combined format") || rep.First[2].Text != "no log" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		strings.Repeat("caddy_1  | "+strings.TrimSpace(caddyAt("1700000000", "0"))+"\n", 20):                          "--no-log-prefix",
		strings.Repeat("May 01 12:30:00 host caddy[1234]: "+strings.TrimSpace(caddyAt("1700000000", "0"))+"\n", 5000): "journalctl -o cat",
		"#Version: 1.0\n#Fields: date time\n":                "IIS",
		"h2 2024-05-01T12:30:00.123Z app/lb/1 1.2.3.4:5 -\n": "load balancer",
		"time=2024-05-01 level=info msg=x\n":                 "logfmt",
		"[\n  {\n    \"ts\": 1\n":                            "jq -c",
		"<html>\n":                                           "HTML",
		"\x7fELF\x00\x00\n":                                  "binary",
		"hello\n":                                            "readable are",
		good[:300] + "\n" + seconds(0, 50):                   "readable are",
		`{"level":"info","ts":1,"logger":"admin","msg":"admin endpoint started"}`: "no requests in 1 lines: they are of other",
		"":       "no requests: the logs are empty",
		"\n\r\n": "no requests: the logs are empty",
		`{"level":"info","ts":1,"logger":"http.log.access","msg":"handled request"}` + "\n": "no member `request`",
		`{"logger":"http.log.access","msg":"handled request","request":{}}` + "\n":          "no member `ts`",
		"\xff\xfe{\x00": "UTF-16",
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "x.log")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open([]string{name}, Options{})
		if err == nil {
			for range r.All() {
			}
			err = r.Err()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	if lines, r := readAll(t, Options{}, "\xef\xbb\xbf"+strings.ReplaceAll(seconds(0, 3), "\n", "\r\n")); len(lines) != 3 {
		t.Error("a mark of UTF-8 and ends of Windows:", r.Err())
	}
}

func TestLong(t *testing.T) {
	long := strings.Replace(caddyAt("1700000000", "0"), `"uri":"/`, `"uri":"/`+strings.Repeat("x", 3<<20), 1)
	lines, r := readAll(t, Options{}, seconds(0, 10)+long+seconds(10, 20))
	if r.Err() != nil || len(lines) != 21 || len(lines[10].URI) != 3<<20+1 || lines[11].Number != 12 {
		t.Error(len(lines), r.Err())
	}
	_, r = readAll(t, Options{}, seconds(0, 3000)+strings.Repeat("x", maxLine)+"\n"+seconds(10, 20))
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "a.log:3001: the line is longer than 16 MiB") {
		t.Error(r.Err())
	}
}

// TestSummerTime refuses local times that step back by an hour, and reads those that have a zone.
func TestSummerTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for format, ok := range map[string]bool{"2006/01/02 15:04:05": false, "2006/01/02 15:04:05.000": false, time.RFC3339: true, layout: true} {
		text := ""
		for i := range 240 {
			at := time.Date(2024, 10, 26, 23, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Minute).In(berlin)
			text += caddyAt(`"`+at.Format(format)+`"`, "0.5")
		}
		lines, r := readAll(t, Options{}, text)
		if ok {
			if r.Err() != nil || len(lines) != 240 || lines[239].End-lines[0].End != int64(239*time.Minute) {
				t.Errorf("%s: %v", format, r.Err())
			}
			continue
		}
		if r.Err() == nil || !strings.Contains(r.Err().Error(), "a.log:121: the time steps back by an hour") {
			t.Errorf("%s: %v", format, r.Err())
		}
	}
}

// TestPrepare sees that what workers prepare comes with the line, and that leaving All early ends it.
func TestPrepare(t *testing.T) {
	lines, _ := readAll(t, Options{Workers: 4, Prepare: func(l *Line) { l.Value = l.End }}, seconds(0, 20000))
	for i := range lines {
		if lines[i].Value != lines[i].End || lines[i].Number != int64(i+1) {
			t.Fatal(i, lines[i].Value)
		}
	}
	name := filepath.Join(t.TempDir(), "a.log")
	if err := os.WriteFile(name, []byte(seconds(0, 20000)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open([]string{name}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range r.All() {
		break
	}
}
