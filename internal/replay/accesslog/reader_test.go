package accesslog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// caddyLine is a line of Caddy 2.11.
const caddyLine = `{"level":"info","ts":1646861401.5241024,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"localhost:8080","uri":"/a?b=\"c\"","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*","text/html"],"Cookie":["REDACTED"],"Authorization":[]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read":0,"user_id":"anna","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]},"customer":"c 1"}`

// readAll returns the requests of files with these texts.
func readAll(t *testing.T, o Options, texts ...string) ([]Line, *Reader) {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for i, text := range texts {
		name := filepath.Join(dir, string(rune('a'+i))+".log")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	r, err := Open(names, o)
	if err != nil {
		t.Fatal(err)
	}
	var lines []Line
	for l := range r.All() {
		lines = append(lines, *l)
	}
	return lines, r
}

func TestCaddyLine(t *testing.T) {
	lines, r := readAll(t, Options{}, caddyLine+"\n")
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	l := lines[0]
	if l.End != 1646861401524102400 || l.Start != l.End-929675 || l.Duration != 929675*time.Nanosecond || l.WholeSeconds() {
		t.Error("times", l.Start, l.End, l.Duration, l.Precision)
	}
	if l.RemoteIP != "127.0.0.1" || l.RemotePort != "41342" || l.ClientIP != "192.0.2.7" || l.Proto != "HTTP/2.0" || l.Method != "GET" || l.Host != "localhost:8080" || l.URI != `/a?b="c"` || l.UserID != "anna" {
		t.Errorf("%+v", l)
	}
	if l.Size != 10900 || l.Status != 200 || !l.TLS || l.ServerName != "example.com" || l.Format != JSON || l.Number != 1 {
		t.Errorf("%+v", l)
	}
	for name, want := range map[string]string{
		"user-agent": "present curl/7.82.0", "Accept": "present */* text/html", "Cookie": "redacted", "Authorization": "redacted", "X-None": "absent",
	} {
		v, p := l.Header(name)
		if got := strings.TrimSpace(p.String() + " " + strings.Join(v, " ")); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for path, want := range map[string]string{
		"customer": "present c 1", "request>tls>version": "present 772", "request>headers>Cookie": `present ["REDACTED"]`, "none": "unknown", "request>none": "unknown", "status>x": "unknown",
	} {
		v, p := l.Member(path)
		if got := strings.TrimSpace(p.String() + " " + v); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if rep := r.Report(); rep.Requests != 1 || rep.Lines != 1 || rep.Broken != 0 || rep.Bytes != int64(len(caddyLine)+1) {
		t.Errorf("%+v", rep)
	}
}

func TestCombinedLine(t *testing.T) {
	const line = `2001:db8::1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache\x22.gif?a=\"b\" HTTP/1.0" 200 2326 "http://example.com/" "Mozilla/4.08 \"x\"" 0.004 extra`
	lines, r := readAll(t, Options{}, line)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	l := lines[0]
	if want := time.Date(2000, 10, 10, 20, 55, 36, 0, time.UTC).UnixNano(); l.End != want || l.Start != want || !l.WholeSeconds() {
		t.Error("times", l.Start, l.End, l.Precision)
	}
	if l.RemoteIP != "2001:db8::1" || l.UserID != "frank" || l.Method != "GET" || l.URI != `/apache".gif?a="b"` || l.Proto != "HTTP/1.0" || l.Status != 200 || l.Size != 2326 {
		t.Errorf("%+v", l)
	}
	if v, p := l.Header("User-Agent"); p != Present || v[0] != `Mozilla/4.08 "x"` {
		t.Error(v, p)
	}
	if _, p := l.Header("Cookie"); p != Unknown {
		t.Error(p)
	}
}
