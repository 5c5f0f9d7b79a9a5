package slidingwindow

import (
	"context"
	"crypto/tls"
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
	"go.uber.org/zap"
)

// requestNames is what the names of Caddy's own placeholders of a request begin with.
// Caddy decides which of them there are; to another one nothing gives a value.
const requestNames = "http.request."

// checkKnown refuses a placeholder under http.request. that Caddy does not know. Other
// unknown names are not refused: map, vars and other modules may define them.
func checkKnown(name string) error {
	if !strings.HasPrefix(name, requestNames) || caddyKnows(name) {
		return nil
	}
	return errUnknown(name)
}

func errUnknown(name string) error {
	if meant := meantBy(name); meant != "" {
		return fmt.Errorf("{%s} is not a placeholder of Caddy and never has a value; write %s", name, written(meant))
	}
	return fmt.Errorf("{%s} is not a placeholder of Caddy and never has a value; caddyserver.com/docs/json/apps/http lists those that are", name)
}

// written returns a placeholder as the operator can write it.
func written(name string) string {
	if name == clientIPName {
		return "{client_ip}, which is {http.vars.client_ip} in JSON"
	}
	return "{" + name + "}"
}

// caddyKnows reports whether Caddy's own replacer knows a placeholder in a request. A
// placeholder that panics on the made-up request is one that Caddy knows.
func caddyKnows(name string) (known bool) {
	defer func() {
		if recover() != nil {
			known = true
		}
	}()
	_, known = madeUpReplacer().Get(name)
	return known
}

// madeUpReplacer returns the replacer that Caddy gives a request. The request has all that
// a request can have, so that Caddy does not take a name for unknown for the want of it.
func madeUpReplacer() *caddy.Replacer {
	local := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, RequestURI: "/",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody,
		Host: "example.com", RemoteAddr: "192.0.2.2:1024",
		TLS: &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true, ServerName: "example.com"},
	}
	repl := caddy.NewReplacer()
	r = r.WithContext(context.WithValue(context.Background(), http.LocalAddrContextKey, net.Addr(local)))
	caddyhttp.PrepareRequest(r, repl, noAnswer{}, new(caddyhttp.Server))
	return repl
}

// noAnswer is an answer that nobody reads.
type noAnswer struct{}

func (noAnswer) Header() http.Header         { return make(http.Header) }
func (noAnswer) Write(p []byte) (int, error) { return len(p), nil }
func (noAnswer) WriteHeader(int)             {}

// namesIn returns the names of a text's placeholders.
func namesIn(text string) []string {
	var names []string
	_, _ = caddy.NewEmptyReplacer().ReplaceFunc(text, func(name string, _ any) (any, error) {
		names = append(names, name)
		return "", nil
	}) // no error: it was read before, or has no placeholder
	return names
}

// namesInMatcher returns the names of placeholders in a matcher's configuration, of which
// the zone knows only that it is JSON. Braces that are no placeholder, as in an
// expression, hold no name. Regular expressions have no placeholders.
func namesInMatcher(raw json.RawMessage) []string {
	var config any
	if json.Unmarshal(raw, &config) != nil {
		return nil // Caddy reports it
	}
	var names []string
	eachText(config, func(text string) {
		for _, m := range placeholderInMatcher.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
	})
	return names
}

var placeholderInMatcher = regexp.MustCompile(`(?:^|[^\\]){([a-zA-Z%?][\w.%?/,-]*)}`)

// eachText calls f with the texts in a JSON value. Names of members are texts, too: those of
// the matcher vars hold placeholders.
func eachText(value any, f func(string)) {
	switch v := value.(type) {
	case string:
		f(v)
	case []any:
		for _, e := range v {
			eachText(e, f)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if name != "pattern" {
				f(name)
				eachText(v[name], f)
			}
		}
	}
}

// checkMatcherNames refuses matchers with a placeholder that never has a value.
func (z *Zone) checkMatcherNames() error {
	for _, set := range z.MatcherSetsRaw {
		for _, matcher := range slices.Sorted(maps.Keys(set)) {
			for _, name := range namesInMatcher(set[matcher]) {
				if err := checkKnown(name); err != nil {
					return fmt.Errorf("match %s: %w", matcher, err)
				}
			}
		}
	}
	return nil
}

// useOfName is a placeholder and the option that holds it.
type useOfName struct{ option, name string }

// names returns the placeholders of a zone, without those of the default key.
func (z *Zone) names() []useOfName {
	var uses []useOfName
	add := func(option string, names []string) {
		for _, name := range names {
			if use := (useOfName{option, name}); !slices.Contains(uses, use) {
				uses = append(uses, use)
			}
		}
	}
	add("key", namesIn(z.Key))
	for _, l := range z.Limits {
		add("limit", namesIn(string(l.Max)))
		add("limit", namesIn(string(l.Window)))
	}
	add("cost", namesIn(string(z.Cost)))
	if z.Algorithm != nil {
		for _, f := range z.Algorithm.Fields {
			add("fields", namesIn(f.Value))
		}
	}
	for _, set := range z.MatcherSetsRaw {
		for _, matcher := range slices.Sorted(maps.Keys(set)) {
			add("match", namesInMatcher(set[matcher]))
		}
	}
	return uses
}

// constantKey is the key of a zone that counts all requests together on purpose.
const constantKey = "all"

// warnOfNames logs what is most likely a mistake in the zone, but may be meant: a key
// without a placeholder, and a name that resembles one of Caddy's. Call it before the
// matchers are loaded.
func (z *Zone) warnOfNames(ctx caddy.Context) {
	logger := ctx.Logger()
	if z.Key != "" && z.Key != constantKey && len(namesIn(z.Key)) == 0 {
		fields := []zap.Field{zap.String("zone", z.Name), zap.String("key", z.Key)}
		if name := nameInText(z.Key); name != "" {
			fields = append(fields, zap.String("probably_meant", written(name)))
		}
		logger.Warn("key holds no placeholder, so that all requests share one counter; write key all if that is meant", fields...)
	}
	for _, use := range z.names() {
		if strings.HasPrefix(use.name, authNames) && z.isBeforeAuthentication(ctx) {
			logger.Warn("placeholder has no value yet: authentication comes after sliding_window; write both in a route, the authentication first",
				zap.String("zone", z.Name), zap.String("option", use.option), zap.String("placeholder", "{"+use.name+"}"))
			continue
		}
		if strings.HasPrefix(use.name, requestNames) || use.option != "match" && use.name == "client_ip" {
			continue
		}
		meant := meantBy(use.name)
		if meant == "" || defines(ctx, use.name) {
			continue
		}
		// To Caddy all variables are known, as they may be set or not.
		if strings.HasPrefix(use.name, "http.vars.") || !caddyKnows(use.name) {
			logger.Warn("placeholder is not one of Caddy's and has no value unless another module defines it",
				zap.String("zone", z.Name), zap.String("option", use.option),
				zap.String("placeholder", "{"+use.name+"}"), zap.String("probably_meant", written(meant)))
		}
	}
}

// nameInText returns the placeholder that a text without braces was meant to be, if it is
// the name of one.
func nameInText(text string) string {
	if strings.ContainsAny(text, `{}\`) {
		return ""
	}
	if long := longName(text); long != "" {
		return long
	}
	if strings.HasPrefix(text, requestNames) && caddyKnows(text) {
		return text
	}
	return meantBy(text)
}
