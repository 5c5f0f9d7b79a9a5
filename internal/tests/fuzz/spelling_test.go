package fuzz

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
)

// FuzzSpelling: what Caddy's matchers take for one host or one path has one key, and
// what {host} gives has the key of {hostport}.
func FuzzSpelling(f *testing.F) {
	for _, seed := range []struct{ host, path string }{
		{"one.test", "/login"},
		{"ONE.test:80", "//login"},
		{"[one.test", "/./LOGIN"},
		{"one.test]", "/x/..//login"},
		{"\u212aey.te\u017ft", "/login/."},
		{"[::1]:80", ""},
		{"::1", "*"},
		{"one.test.", "/login/"},
		{"[one.test:80]:90", "/\xff"},
	} {
		f.Add(seed.host, seed.path)
	}
	f.Fuzz(func(t *testing.T, host, path string) {
		repl, w := caddy.NewReplacer(), httptest.NewRecorder()
		r := &http.Request{Method: http.MethodGet, Host: host, URL: &url.URL{Path: path}, Header: http.Header{}, RemoteAddr: "192.0.2.1:1"}
		r = caddyhttp.PrepareRequest(r, repl, w, &caddyhttp.Server{})
		for _, site := range []string{"one.test", "key.test", "::1"} {
			if match, _ := (caddyhttp.MatchHost{site}).MatchWithError(r); match && normalize.HostPort(host) != site {
				t.Errorf("Host %q reaches %s, and counts as %q", host, site, normalize.HostPort(host))
			}
		}
		name, _ := repl.GetString("http.request.host")
		if got, want := normalize.Host(name), normalize.HostPort(host); got != want {
			t.Errorf("Host %q: {host} counts as %q, {hostport} as %q", host, got, want)
		}
		if match, _ := (caddyhttp.MatchPath{"/login"}).MatchWithError(r); match && !strings.EqualFold(normalize.Path(path), "/login") {
			t.Errorf("path %q reaches /login, and counts as %q", path, normalize.Path(path))
		}
		if got, want := normalize.Path(path), caddyhttp.CleanPath(path, true); got != want && path != "" {
			t.Errorf("path %q counts as %q, for Caddy it is %q", path, got, want)
		}
	})
}
