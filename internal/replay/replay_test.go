package replay_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
)

// file writes a file for the test, and returns its name.
func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// logged is a line of Caddy's log: a request to / that ended at a time, in seconds, with these members in `request` and
// beside it.
func logged(at float64, headers, more string) string {
	return fmt.Sprintf(`{"level":"info","ts":%.3f,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"192.0.2.1","remote_port":"1000","client_ip":"192.0.2.1","proto":"HTTP/1.1","method":"GET","host":"example.com","uri":"/","headers":{%s}},"duration":0.001,"size":1,"status":200,"user_id":"","resp_headers":{}%s}`,
		at, headers, more) + "\n"
}

// answered is logged with a field of the answer.
func answered(at float64, name, value string) string {
	return strings.Replace(logged(at, "", ""), `"resp_headers":{}`, fmt.Sprintf(`"resp_headers":{%q:[%q]}`, name, value), 1)
}

const start = 1_700_000_000

// site is a Caddyfile of a site with a zone.
func site(before, zone string) string {
	return "http://example.com {\n" + before + "\nroute {\nsliding_window {\nzone z {\nlimit 2 1m\n" + zone + "\n}\n}\nrespond ok\n}\n}\n"
}

const combined = `192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/7"` + "\n"

// A log does not tell all that a configuration asks for. What is missing is named, with its line and the cure.
func TestRefusals(t *testing.T) {
	secret := logged(start, `"Authorization":["REDACTED"],"Cookie":["REDACTED"]`, "")
	for name, c := range map[string]struct {
		config, log, want string
	}{
		"redacted key":           {site("", "key {header.Authorization}"), secret, "access.log:1: zone z asks for authorization, which the log has redacted; write log_append"},
		"redacted in the past":   {site("", "key {header.Authorization}"), logged(start, `"Authorization":[]`, ""), "which the log has redacted"},
		"redacted cookie":        {site("", "key {cookie.session}"), secret, "zone z asks for a cookie of cookie, which the log has redacted"},
		"redacted, in a map":     {site("map {header.Authorization} {who} {\ndefault {header.Authorization}\n}", "key {who}"), secret, "asks for authorization, which the log has redacted"},
		"redacted, in a matcher": {site("", "match header Authorization Bearer*"), secret, "a matcher compares authorization, which the log has redacted"},
		"redacted, in CEL":       {site("", "match expression header({'Authorization':'x*'})"), secret, "a matcher compares authorization"},
		"redacted limit":         {site("", "limit {header.Cookie} 2m\nfallback 1 2m"), secret, "zone z asks for cookie"},
		"second line":            {site("", "key {header.Authorization}\nempty_key skip"), logged(start, "", "") + secret, "access.log:2: zone z asks"},
		"field in combined":      {site("", "key {header.X-Key}"), combined, "zone z asks for x-key, which a log in this format does not tell; take an access log of Caddy in JSON"},
		"host in combined":       {strings.Replace(site("", "key {host}"), "http://example.com", ":80", 1), combined, "zone z asks for {host}, which the log does not tell"},
		"sites in combined":      {site("", "") + strings.ReplaceAll(site("", ""), "example.com", "example.org"), combined, "the log does not tell the host, and the configuration has sites for several"},
		"certificate":            {site("", "key {tls_client_subject}"), logged(start, "", ""), "zone z asks for {tls_client_subject}, which the log does not tell"},
		"user of another log":    {site("", "key {http.auth.user.id}"), strings.Replace(logged(start, "", ""), `"user_id":"",`, "", 1), "zone z asks for {http.auth.user.id}, which the log does not tell"},
		"other fact of the user": {site("", "key {http.auth.user.role}"), logged(start, "", ""), "zone z asks for {http.auth.user.role}, which the log does not tell; write log_append role {http.auth.user.role}"},
		"body in a matcher":      {site("", "match expression {http.request.body}.contains('x')"), logged(start, "", ""), "which the log does not tell"},
		"field of forward_auth": {
			"http://example.com {\nroute {\nforward_auth localhost:9 {\nuri /auth\ncopy_headers X-User\n}\nsliding_window z {header.X-User} 2 1m\nrespond ok\n}\n}\n",
			logged(start, "", ""), "zone z asks for x-user, which another server sets that a replay does not ask; write log_append x-user {header.x-user}",
		},
		"servers": {"http://:81 {\nsliding_window a {client_ip} 1 1m\n}\nhttp://:82 {\nsliding_window b {client_ip} 1 1m\n}\n", logged(start, "", ""), "several servers of the configuration may have got the request: srv0, srv1; name one with --server"},
		"no zone": {"http://example.com {\nrespond ok\n}\n", logged(start, "", ""), "has no zone of sliding_window"},
		"invalid": {site("", "key {nonsense.x"), logged(start, "", ""), "Caddyfile"},
		"no log":  {site("", ""), "", "no requests"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := replay.Run(options(file(t, "Caddyfile", c.config), file(t, "access.log", c.log)))
			switch {
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// What the log tells in another way counts.
func TestKnownOtherwise(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		lines  []string
		denied int64
		notes  string
	}{
		"log_append": {
			site("log_append customer {header.Authorization}", "key {header.Authorization}"),
			[]string{logged(start, `"Authorization":["REDACTED"]`, `,"customer":"anna"`), logged(start+1, `"Authorization":["REDACTED"]`, `,"customer":"anna"`), logged(start+2, `"Authorization":["REDACTED"]`, `,"customer":"anna"`), logged(start+3, `"Authorization":["REDACTED"]`, `,"customer":"bob"`)}, 1, "",
		},
		"user": {
			"http://example.com {\nroute {\nbasic_auth {\nanna $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\nsliding_window z {http.auth.user.id} 1 1m\nrespond ok\n}\n}\n",
			[]string{strings.Replace(logged(start, "", ""), `"user_id":""`, `"user_id":"anna"`, 1), strings.Replace(logged(start+1, "", ""), `"user_id":""`, `"user_id":"anna"`, 1), strings.Replace(logged(start+2, "", ""), `"status":200`, `"status":401`, 1)}, 1, "",
		},
		"presence of a redacted field": {
			site("", "match header Authorization *"),
			[]string{logged(start, `"Authorization":["REDACTED"]`, ""), logged(start+1, "", ""), logged(start+2, `"Authorization":["REDACTED"]`, "")}, 0, "",
		},
		"later handlers do not matter": {
			"http://example.com {\nroute {\nsliding_window z {client_ip} 1 1m\n@a header Authorization x*\nrespond @a no\nrewrite {header.Cookie}\nreverse_proxy {header.Cookie}\n}\n}\n",
			[]string{logged(start, `"Authorization":["REDACTED"],"Cookie":["REDACTED"]`, ""), logged(start+1, `"Authorization":["REDACTED"]`, "")}, 1, "",
		},
		"handlers that are not run": {
			"http://example.com {\nroute {\nforward_auth localhost:9 {\nuri /auth\n}\nsliding_window z {client_ip} 1 1m {\n}\n}\n}\n",
			[]string{logged(start, "", ""), logged(start+1, "", "")}, 1, "forward_auth, is not asked",
		},
		"load and lease are off": {
			site("", "load cpu 70% 90%\nlimit 100 50s"), []string{logged(start, "", "")}, 0, "zone z: load is off in a replay",
		},
		"settle is off": {
			site("", "settle usage openai"), []string{logged(start, "", "")}, 0, "zone z: settle is off in a replay",
		},
		"settle by a header": {
			strings.Replace(site("", "limit 10 50s\nsettle header X-Units"), "limit 2 1m\n", "", 1),
			[]string{answered(start, "X-Units", "9"), answered(start+1, "X-Units", "9"), logged(start+2, "", "")}, 1, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := replay.Run(options(file(t, "Caddyfile", c.config), file(t, "access.log", strings.Join(c.lines, ""))))
			if err != nil {
				t.Fatal(err)
			}
			if report.Zones[0].Denied != c.denied {
				t.Errorf("denied %d, want %d: %+v", report.Zones[0].Denied, c.denied, report.Zones[0])
			}
			if notes := strings.Join(report.Notes, "\n"); !strings.Contains(notes, c.notes) {
				t.Errorf("notes %q, want %q in them", notes, c.notes)
			}
		})
	}
}

// Requests without a key share one, which is shown as what it is.
func TestEmptyKey(t *testing.T) {
	log := logged(start, "", "") + logged(start+1, "", "") + logged(start+2, "", "")
	report, err := replay.Run(options(file(t, "Caddyfile", site("", "key {header.X-Api-Key}")), file(t, "access.log", log)))
	if err != nil {
		t.Fatal(err)
	}
	if top := report.Zones[0].Top; len(top) != 1 || top[0].Key != "" {
		t.Errorf("denied %+v, want the empty key", top)
	}
}

// Overrides that are in force decide, as long as the log is.
func TestOverrides(t *testing.T) {
	var lines strings.Builder
	for i := range 12 {
		for _, ip := range []string{"192.0.2.1", "192.0.2.2", "198.51.100.1", "203.0.113.1"} {
			lines.WriteString(strings.ReplaceAll(logged(start+float64(i), "", ""), "192.0.2.1", ip))
		}
	}
	o := options(file(t, "Caddyfile", site("", "")), file(t, "access.log", lines.String()))
	o.Keys = true
	o.Overrides = file(t, "overrides.json", `{"stores":[{"store":"memory","version":"1","records":[
		{"id":"x","zone":"z","key":"192.0.2.1","exempt":true,"created":"2020-01-01T00:00:00Z"},
		{"id":"y","zone":"z","key":"192.0.2.2","limits":[{"max":10,"window":"1m"}],"until":"2100-01-01T00:00:00Z","created":"2020-01-01T00:00:00Z"},
		{"id":"y","zone":"z","key":"203.0.113.1","exempt":true,"until":"2021-01-01T00:00:00Z","created":"2020-01-01T00:00:00Z"},
		{"id":"z","zone":"z","cidr":"198.51.100.0/24","deny":true,"created":"2020-01-01T00:00:00Z"}]}]}`)
	report, err := replay.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	denied := make(map[string]int64)
	for _, k := range report.Zones[0].Top {
		denied[k.Key] = k.Denied
	}
	if want := map[string]int64{"192.0.2.2": 2, "198.51.100.1": 12, "203.0.113.1": 10}; !maps.Equal(denied, want) {
		t.Errorf("denied %v, want %v", denied, want)
	}
	if z := report.Zones[0]; z.Others != 12 || z.Requests != 36 {
		t.Errorf("%d denied by an override of %d, want 12 of 36", z.Others, z.Requests)
	}
	for text, want := range map[string]string{
		`{}`: "overrides.json holds no overrides", `[{"zone":"z"}]`: "override number 1",
		`[{"zone":"z","id":"x","hashes":["00"],"exempt":true}]`: "the override x has the hash of a key",
	} {
		o.Overrides = file(t, "overrides.json", text)
		if _, err := replay.Run(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", text, err, want)
		}
	}
}

// A request of a zone with tiers counts once, for its address, and each limit by itself.
func TestTiers(t *testing.T) {
	var lines strings.Builder
	for i := range 6 {
		lines.WriteString(strings.ReplaceAll(logged(start+float64(i), "", ""), "192.0.2.1", fmt.Sprint("192.0.2.", 1+i/3)))
	}
	o := options(file(t, "Caddyfile", site("", "limit 3 1m tier 24/48")), file(t, "access.log", lines.String()))
	o.Keys = true
	report, err := replay.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	z := report.Zones[0]
	want := []replay.Limit{{Limit: "2 in 1m", Denied: 1}, {Limit: "3 in 1m tier 24/48", Denied: 2}}
	if z.Requests != 6 || z.Denied != 3 || z.Keys != 2 || !slices.Equal(z.Limits, want) || z.Top[0].Key != "192.0.2.2" || z.Top[0].Denied != 2 {
		t.Errorf("got %+v, want %v", z, want)
	}
}

// A replay writes nothing.
func TestWritesNothing(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	if _, err := replay.Run(options(file(t, "Caddyfile", "example.com {\nsliding_window z {client_ip} 1 1m\nrespond ok\n}\n"), file(t, "access.log", logged(start, "", "")))); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(home, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			t.Errorf("the replay has written %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The report is the same however the log was written: late lines, rotated and compressed files, other formats of times.
func TestOddLogs(t *testing.T) {
	config := file(t, "Caddyfile", site("", "key {client_ip}\nlimit 5 10m"))
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test
	type request struct {
		at   float64
		line string
	}
	var requests []request
	for i := range 3000 {
		at := start + float64(i)*0.7 + float64(rng.IntN(600))/1000
		ip := fmt.Sprintf("192.0.2.%d", 1+rng.IntN(40))
		requests = append(requests, request{at, strings.ReplaceAll(logged(at, "", ""), "192.0.2.1", ip)})
	}
	join := func(all []request) string {
		var b strings.Builder
		for _, r := range all {
			b.WriteString(r.line)
		}
		return b.String()
	}
	run := func(what string, logs ...string) []replay.Zone {
		t.Helper()
		report, err := replay.Run(options(config, logs...))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return report.Zones
	}
	slices.SortFunc(requests, func(a, b request) int { return cmp.Compare(a.at, b.at) })
	whole := join(requests)
	want := run("in order", file(t, "access.log", whole))
	if want[0].Denied == 0 || want[0].Requests != 3000 {
		t.Fatalf("zones %+v", want)
	}
	late := slices.Clone(requests)
	for i := 0; i+50 <= len(late); i += 50 { // 35 s
		rng.Shuffle(50, func(a, b int) { late[i+a], late[i+b] = late[i+b], late[i+a] })
	}
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, _ = w.Write([]byte(join(requests[:1000])))
	_ = w.Close()
	odd := make([][]request, 2) // two Caddys
	for i, r := range requests {
		odd[i%2] = append(odd[i%2], r)
	}
	times := regexp.MustCompile(`"ts":([0-9]+)\.([0-9]+)`)
	zoned := times.ReplaceAllStringFunc(whole, func(ts string) string {
		m := times.FindStringSubmatch(ts)
		seconds, _ := strconv.ParseInt(m[1], 10, 64)
		millis, _ := strconv.ParseInt(m[2], 10, 64)
		at := time.UnixMilli(seconds*1000 + millis).In(time.FixedZone("", 3600*[]int{2, -7}[seconds%2]))
		return `"ts":"` + at.Format("2006-01-02T15:04:05.000Z07:00") + `"`
	})
	for what, logs := range map[string][]string{
		"out of order":       {file(t, "access.log", join(late))},
		"rotated":            {file(t, "access.log", join(requests[1000:])), file(t, "access.log.1.gz", compressed.String())},
		"of two Caddys":      {file(t, "1.log", join(odd[0])), file(t, "2.log", join(odd[1]))},
		"other time zones":   {file(t, "access.log", zoned)},
		"ends within a line": {file(t, "access.log", whole+requests[0].line[:100])},
	} {
		if got := run(what, logs...); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	if _, err := replay.Run(options(config, file(t, "access.log", strings.Repeat(whole[:strings.IndexByte(whole, '\n')+1], 20)+"{\"ts\":1,\n"))); err == nil || !strings.Contains(err.Error(), "access.log:21") {
		t.Errorf("a broken line: %v", err)
	}
}
