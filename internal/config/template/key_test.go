package template

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestGroupAddresses(t *testing.T) {
	for _, c := range []struct {
		value  string
		v4, v6 int
		want   string
	}{
		{"192.0.2.7", 32, 64, "192.0.2.7"},
		{"192.0.2.7", 24, 64, "192.0.2.0/24"},
		{"192.0.2.7", 0, 64, "0.0.0.0/0"},
		{"::ffff:192.0.2.7", 32, 64, "192.0.2.7"},
		{"::ffff:192.0.2.7", 24, 64, "192.0.2.0/24"},
		{"::FFFF:c000:207", 32, 64, "192.0.2.7"},
		{"2001:db8:1:2:3:4:5:6", 32, 64, "2001:db8:1:2::/64"},
		{"2001:DB8:1:2:0:0:0:6", 32, 64, "2001:db8:1:2::/64"},
		{"2001:db8:1:2::6", 32, 48, "2001:db8:1::/48"},
		{"2001:db8:1:2:0::6", 32, 128, "2001:db8:1:2::6"},
		{"2001:db8::1", 32, 0, "::/0"},
		{"fe80::1%eth0", 32, 64, "fe80::/64"},
		{"fe80::1%eth1", 32, 128, "fe80::1"},
		{"::ffff:192.0.2.7%eth0", 32, 64, "192.0.2.7"},
		// With a port.
		{"192.0.2.7:80", 32, 64, "192.0.2.7"},
		{"192.0.2.7:80", 24, 64, "192.0.2.0/24"},
		{"[2001:db8::1]", 32, 64, "2001:db8::/64"},
		{"[2001:db8::1]:80", 32, 64, "2001:db8::/64"},
		{"[2001:db8::1]:80", 32, 128, "2001:db8::1"},
		{"[::ffff:192.0.2.7]:80", 32, 64, "192.0.2.7"},
		// No addresses: they are what they are.
		{"", 24, 64, ""},
		{"key", 24, 64, "key"},
		{"192.0.2", 24, 64, "192.0.2"},
		{"192.0.2.007", 24, 64, "192.0.2.007"},
		{"192.0.2.7:http", 24, 64, "192.0.2.7:http"},
		{"[192.0.2.7]:80", 24, 64, "[192.0.2.7]:80"},
		{"one.test:80", 24, 64, "one.test:80"},
		{"2001:db8::/32", 24, 64, "2001:db8::/32"},
		{"a:b", 24, 64, "a:b"},
	} {
		if got := (Prefixes{c.v4, c.v6}).group(c.value); got != c.want {
			t.Errorf("%q by /%d and /%d: got %q, want %q", c.value, c.v4, c.v6, got, c.want)
		}
	}
}

// expandKey expands a template for a request with the fields A and B, from
// remote.
func expandKey(t *testing.T, template, remote string, fields [2]string) (string, bool) {
	t.Helper()
	k, err := NewKey(template, Prefixes{DefaultIPv4Prefix, DefaultIPv6Prefix})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/?q=2001:db8::1", nil)
	r.RemoteAddr = remote
	r.Header = http.Header{"A": {fields[0]}, "B": {fields[1]}}
	repl := caddy.NewReplacer()
	r = caddyhttp.PrepareRequest(r, repl, httptest.NewRecorder(), &caddyhttp.Server{})
	return k.Expand(r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any), repl)
}

func TestExpandKey(t *testing.T) {
	const (
		remote = "192.0.2.7:1234"
		a, b   = "{http.request.header.A}", "{http.request.header.B}"
	)
	for _, c := range []struct {
		template, remote string
		fields           [2]string
		want             string
		empty            bool
	}{
		{DefaultKey, remote, [2]string{}, "192.0.2.7", false},
		{"{client_ip}", remote, [2]string{}, "192.0.2.7", false},
		{DefaultKey, "[2001:db8::1]:1234", [2]string{}, "2001:db8::/64", false},
		{"{http.request.uri.query.q}", remote, [2]string{}, "2001:db8::/64", false},
		{"static", remote, [2]string{}, "static", false},
		{"", remote, [2]string{}, "", false},
		{`\{static\}`, remote, [2]string{}, "{static}", false},
		{a, remote, [2]string{"x", ""}, "x", false},
		{a, remote, [2]string{"", ""}, "", true},
		{a, remote, [2]string{b, "x"}, b, false},
		{"{http.no.such}", remote, [2]string{}, "", true},
		{"user-" + a, remote, [2]string{"x", ""}, "user-x", false},
		{"user-" + a, remote, [2]string{"", ""}, "user-", true},
		{"{client_ip}/" + a, remote, [2]string{"x", ""}, "9:192.0.2.7/1:x", false},
		{"{client_ip}/" + a, remote, [2]string{"", ""}, "9:192.0.2.7/0:", false},
		{a + b, remote, [2]string{"", ""}, "0:0:", true},
		{a + b, remote, [2]string{"\xff", "\x00"}, "1:\xff1:\x00", false},
	} {
		got, empty := expandKey(t, c.template, c.remote, c.fields)
		if got != c.want || empty != c.empty {
			t.Errorf("%s of %q: got %q, empty %t, want %q, %t", c.template, c.fields, got, empty, c.want, c.empty)
		}
	}
}

// One key for all spellings that reach the same handler, and others for others.
func TestSpellings(t *testing.T) {
	spellings := map[string][]string{ // of a host
		"one.test":    {"one.test", "ONE.test", "One.Test.", "one.test:80", "one.test.:8080", "one.test:", "[one.test]", "one.test]"},
		"key.test":    {"key.test", "\u212aey.te\u017ft"},
		"one.test..":  {"one.test.."},
		"other.test":  {"other.test"},
		"192.0.2.7":   {"192.0.2.7", "192.0.2.7:80"},
		"2001:db8::7": {"[2001:db8::7]", "[2001:DB8::7]:80", "[2001:db8:0::7]"},
		"1.one.test":  {"1.one.test:x", "1.one.test:y"},
	}
	for _, template := range []string{"{http.request.host}", "{http.request.hostport}", "{http.request.host}{http.request.hostport}", "site {http.request.host}"} {
		seen := make(map[string]string)
		for host, all := range spellings {
			want := ""
			for i, spelling := range all {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Host = spelling
				key := expandRequest(t, template, false, r)
				if i == 0 {
					want = key
				}
				if key != want {
					t.Errorf("%s of %q: got %q, want %q", template, spelling, key, want)
				}
			}
			if other, taken := seen[want]; taken {
				t.Errorf("%s: %s and %s have the same key %q", template, host, other, want)
			}
			seen[want] = host
		}
	}
	for _, c := range []struct{ template, target, want string }{
		{"{http.request.uri.path}", "/login", "/login"},
		{"{http.request.uri.path}", "//login", "/login"},
		{"{http.request.uri.path}", "/./login", "/login"},
		{"{http.request.uri.path}", "/x/../login", "/login"},
		{"{http.request.uri.path}", "/x/%2e%2e/l%6fgin", "/login"},
		{"{http.request.uri.path}", "/x%2f..%2flogin", "/login"},
		{"{http.request.uri.path}", "/login/", "/login/"},
		{"{http.request.uri.path}", "/Login", "/Login"},
		{"{http.request.uri.path}", "http://one.test", "/"},
		{"{http.request.uri}", "/x/../l%6fgin?a=%61", "/login?a=%61"},
		{"{http.request.uri}", "/login?", "/login"},
		{"{http.request.uri_escaped}", "//login?a", "%2Flogin%3Fa"},
		{"{http.request.uri.path_escaped}", "//login", "%2Flogin"},
		{"{http.request.orig_uri}", "http://ONE.test//login?a", "/login?a"},
		{"{http.request.orig_uri.path}", "//login", "/login"},
		{"{http.request.uri.path.file}", "/a/b.c/.", "b.c"},
		{"{http.request.uri.path.file.base}", "/a/./b.c", "b"},
		{"{http.request.uri.path.file.ext}", "/a/b.c/.", ".c"},
		{"{http.request.uri.path.dir}", "//a/x/../b.c", "/a/"},
		{"{http.request.uri.path.0}", "//a//b", "a"},
		{"{http.request.uri.path.1}", "/./a//b", "b"},
		{"{http.request.uri.path.2}", "/./a//b", ""},
		{"{http.request.orig_uri.path.1}", "/./a//b", "b"},
		{"{http.request.orig_uri.path.file}", "/a/b.c/.", "b.c"},
		{"{http.request.orig_uri.path.file_escaped}", "/a/b%20%63", "b%20c"},
		{"{http.request.orig_uri.path.dir}", "//a/b", "/a/"},
		{"{http.request.host.labels.0}", "http://one.TEST.:80/", "test"},
		{"{http.request.host.labels.1}", "http://ONE.test./", "one"},
		{"{http.request.host.labels.2}", "http://one.test./", ""},
		{"{http.request.method} {http.request.uri.path}", "//login", "3:GET 6:/login"},
	} {
		if got := expandRequest(t, c.template, false, httptest.NewRequest(http.MethodGet, c.target, nil)); got != c.want {
			t.Errorf("%s of %s: got %q, want %q", c.template, c.target, got, c.want)
		}
	}
}

// Without fold_case a value counts as it is.
func TestFoldCase(t *testing.T) {
	for _, template := range []string{"{http.request.header.Authorization}", "{http.request.header.Authorization}{http.request.uri.path}", "Key {http.request.header.Authorization}"} {
		for _, fold := range []bool{false, true} {
			keys := make(map[string]bool)
			for _, value := range []string{"Bearer t", "bearer T", " BEARER T\t", "\u00a0bearer t"} {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Authorization", value)
				keys[expandRequest(t, template, fold, r)] = true
			}
			if want := map[bool]int{false: 4, true: 1}[fold]; len(keys) != want {
				t.Errorf("%s, fold_case %t: %d keys, want %d: %v", template, fold, len(keys), want, keys)
			}
		}
	}
}

// expandRequest expands a template for a request.
func expandRequest(t *testing.T, template string, fold bool, r *http.Request) string {
	t.Helper()
	k, err := NewKey(template, Prefixes{DefaultIPv4Prefix, DefaultIPv6Prefix})
	if err != nil {
		t.Fatal(err)
	}
	k.FoldCase = fold
	repl := caddy.NewReplacer()
	r = caddyhttp.PrepareRequest(r, repl, httptest.NewRecorder(), &caddyhttp.Server{})
	key, _ := k.Expand(r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any), repl)
	return key
}

// Values that would be the same when joined are kept apart.
func TestKeysDoNotCollide(t *testing.T) {
	for _, template := range []string{
		"{http.request.header.A}{http.request.header.B}",
		"{http.request.header.A}:{http.request.header.B}",
		"{http.request.header.A},{client_ip},{http.request.header.B}",
	} {
		seen := make(map[string][2]string)
		for _, fields := range [][2]string{
			{"a:b", "c"},
			{"a", "b:c"},
			{"a:b:c", ""},
			{"", "a:b:c"},
			{"a", "1:b"},
			{"a1:", "b"},
			{"1:a", "b"},
			{"", ""},
			{"0:", ""},
			{":", ""},
			{"", ":"},
			{"a,192.0.2.7", "b"},
			{"a", "192.0.2.7,b"},
			{"2001:db8::/64", ""},
			{"{}", ""},
			{"{", "}"},
		} {
			key, _ := expandKey(t, template, "192.0.2.7:1234", fields)
			if other, taken := seen[key]; taken {
				t.Errorf("%s: %q and %q have the same key %q", template, fields, other, key)
			}
			seen[key] = fields
		}
	}
}
