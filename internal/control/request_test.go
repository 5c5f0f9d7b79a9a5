package control_test

import (
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

func TestRequestHTTP(t *testing.T) {
	for _, test := range []struct {
		request                      control.ExampleRequest
		host, target, path, rawQuery string
		remote, problem              string
	}{
		{control.ExampleRequest{URI: "http://example.com/a%20b?c=d#e", Remote: "192.0.2.1"}, "example.com", "/a%20b?c=d", "/a b", "c=d", "192.0.2.1:0", ""},
		{control.ExampleRequest{URI: "HTTPS://example.com:8443?c", Remote: "[2001:db8::1]:4711"}, "example.com:8443", "/?c", "/", "c", "[2001:db8::1]:4711", ""},
		{control.ExampleRequest{URI: "http://[::1]:80//a/../b", Remote: "2001:db8::1"}, "[::1]:80", "//a/../b", "//a/../b", "", "[2001:db8::1]:0", ""},
		{control.ExampleRequest{URI: "http://a", Remote: "@", Headers: control.Fields{"host": {"b"}}}, "b", "/", "/", "", "@", ""},
		{control.ExampleRequest{URI: "/a", Remote: "::1"}, "", "", "", "", "", "request.uri: must begin with http:// or https:// and a host"},
		{control.ExampleRequest{URI: "http:///a", Remote: "::1"}, "", "", "", "", "", "request.uri: must begin with http:// or https:// and a host"},
		{control.ExampleRequest{URI: "http://secret@a/", Remote: "::1"}, "", "", "", "", "", "request.uri: must begin with http:// or https:// and a host"},
		{control.ExampleRequest{URI: "http://a/%zz", Remote: "::1"}, "", "", "", "", "", "request.uri: the path or the query is not valid"},
		{control.ExampleRequest{URI: "http://a/b c", Remote: "::1"}, "", "", "", "", "", "request.uri: the path or the query is not valid"},
		{control.ExampleRequest{URI: "http://a/"}, "", "", "", "", "", "request.remote: required; send the address that the connection comes from"},
		{control.ExampleRequest{URI: "http://a/", Remote: "secret"}, "", "", "", "", "", "request.remote: not an IP address, with a port or without"},
		{control.ExampleRequest{URI: "http://a/", Remote: "::1", Method: "SE CRET"}, "", "", "", "", "", "request.method: not a method of HTTP"},
		{control.ExampleRequest{URI: "http://a/", Remote: "::1", Headers: control.Fields{"a secret": {"b"}}}, "", "", "", "", "", "request.headers: a name is not one of HTTP"},
		{control.ExampleRequest{URI: "http://a/", Remote: "::1", Headers: control.Fields{"a": {"b\nc"}}}, "", "", "", "", "", "request.headers: a value has a line break or a zero byte"},
	} {
		r, err := test.request.HTTP(t.Context())
		if err != nil {
			if err.Error() != test.problem {
				t.Errorf("%+v: %v, want %s", test.request, err, test.problem)
			}
			continue
		}
		if test.problem != "" || r.Host != test.host || r.RequestURI != test.target || r.URL.Path != test.path || r.URL.RawQuery != test.rawQuery || r.URL.Host != "" ||
			r.RemoteAddr != test.remote || r.Method != "GET" || (r.TLS != nil) != strings.HasPrefix(test.request.URI, "HTTPS") {
			t.Errorf("%+v: got %+v", test.request, r)
		}
	}
}

// checkHTTP wants a request of which HTTP says nothing to be one that a server can get.
func checkHTTP(t *testing.T, request *control.ExampleRequest) {
	t.Helper()
	r, err := request.HTTP(t.Context())
	if err != nil {
		if text := err.Error(); len(text) > 100 || !strings.HasPrefix(text, "request.") {
			t.Errorf("%+v: the error is %q", request, text)
		}
		return
	}
	if r.URL == nil || r.Method == "" || r.RemoteAddr == "" || r.Header == nil || r.Host == "" && request.Headers == nil || !strings.HasPrefix(r.RequestURI, "/") {
		t.Errorf("%+v became %+v", request, r)
	}
}
