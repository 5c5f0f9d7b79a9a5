package template

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// RequestNames is what the names of Caddy's own placeholders of a request begin with.
// Caddy decides which of them there are; to another one nothing gives a value.
const RequestNames = "http.request."

// AuthNames is what the names of placeholders begin with that authentication defines.
const AuthNames = "http.auth."

// CheckKnown refuses a placeholder under http.request. that Caddy does not know, and one that Caddy gives a
// value for the access log only. Other
// unknown names are not refused: map, vars and other modules may define them.
func CheckKnown(name string) error {
	if strings.HasPrefix(name, "http.response.") && !strings.HasPrefix(name, "http.response.header.") {
		return fmt.Errorf("{%s} has a value only once the request is over; take it out", name)
	}
	if !strings.HasPrefix(name, RequestNames) || CaddyKnows(name) {
		return nil
	}
	return errUnknown(name)
}

func errUnknown(name string) error {
	if meant := MeantBy(name); meant != "" {
		return fmt.Errorf("{%s} is not a placeholder of Caddy and never has a value; write %s", name, Written(meant))
	}
	return fmt.Errorf("{%s} is not a placeholder of Caddy and never has a value; caddyserver.com/docs/json/apps/http lists those that are", name)
}

// Written returns a placeholder as the operator can write it.
func Written(name string) string {
	if name == clientIPName {
		return "{client_ip}, which is {http.vars.client_ip} in JSON"
	}
	return "{" + name + "}"
}

// CaddyKnows reports whether Caddy's own replacer knows a placeholder in a request. A
// placeholder that panics on the made-up request is one that Caddy knows.
func CaddyKnows(name string) (known bool) {
	defer func() {
		if recover() != nil {
			known = true
		}
	}()
	_, known = madeUpReplacer(name).Get(name)
	return known
}

// madeUpReplacer returns the replacer that Caddy gives a request. The request has all that
// a request can have, so that Caddy does not take the name of a placeholder for unknown for the want of it.
func madeUpReplacer(name string) *caddy.Replacer {
	local := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, RequestURI: "/",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody,
		Host: "example.com", RemoteAddr: "192.0.2.2:1024",
		TLS: &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true, ServerName: "example.com", PeerCertificates: []*x509.Certificate{{}}},
	}
	if cookie, ok := strings.CutPrefix(name, RequestNames+"cookie."); ok {
		r.AddCookie(&http.Cookie{Name: cookie}) //nolint:gosec // of no answer
	}
	repl := caddy.NewReplacer()
	r = r.WithContext(context.WithValue(context.Background(), http.LocalAddrContextKey, net.Addr(local)))
	caddyhttp.PrepareRequest(r, repl, noAnswer{}, new(caddyhttp.Server))
	return repl
}

// noAnswer is an answer that is not read.
type noAnswer struct{}

func (noAnswer) Header() http.Header         { return make(http.Header) }
func (noAnswer) Write(p []byte) (int, error) { return len(p), nil }
func (noAnswer) WriteHeader(int)             {}

// Names returns the names of a text's placeholders.
func Names(text string) []string {
	var names []string
	_, _ = caddy.NewEmptyReplacer().ReplaceFunc(text, func(name string, _ any) (any, error) {
		names = append(names, name)
		return "", nil
	}) // no error: it was read before, or has no placeholder
	return names
}

// NamesInMatcher returns the names of placeholders in a matcher's configuration, of which
// the zone knows only that it is JSON. Braces that are no placeholder, as in an
// expression, hold no name. Regular expressions have no placeholders.
func NamesInMatcher(raw json.RawMessage) []string {
	var config any
	if json.Unmarshal(raw, &config) != nil {
		return nil // Caddy reports it
	}
	var names []string
	EachText(config, func(text string) {
		for _, m := range placeholderInMatcher.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
	})
	return names
}

var placeholderInMatcher = regexp.MustCompile(`(?:^|[^\\]){([a-zA-Z%?][\w.%?/,-]*)}`)

// EachText calls f with the texts in a JSON value. Names of members are texts, too: those of
// the matcher vars hold placeholders.
func EachText(value any, f func(string)) {
	switch v := value.(type) {
	case string:
		f(v)
	case []any:
		for _, e := range v {
			EachText(e, f)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if name != "pattern" {
				f(name)
				EachText(v[name], f)
			}
		}
	}
}

// NameInText returns the placeholder that a text without braces was meant to be, if it is
// the name of one.
func NameInText(text string) string {
	if strings.ContainsAny(text, `{}\`) {
		return ""
	}
	if long := longName(text); long != "" {
		return long
	}
	if strings.HasPrefix(text, RequestNames) && CaddyKnows(text) {
		return text
	}
	return MeantBy(text)
}
