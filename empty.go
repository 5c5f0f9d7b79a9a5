package slidingwindow

import (
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// noValue is an option of a zone whose placeholders can come out empty: without a value
// in a request. Several are a set.
type noValue uint8

const (
	noKey noValue = 1 << iota
	noLimit
	noCost
)

// valueOptions are the options one by one, with the effect of having no value.
var valueOptions = [...]struct {
	option       noValue
	name, effect string
}{
	{noKey, "key", "all such requests share one counter"},
	{noLimit, "limit", "fallback holds, unless the rest of the text is a limit"},
	{noCost, "cost", "1 is charged, unless the rest of the text is a number"},
}

// noteEmpty counts options of a zone that came out empty, and tells the operator once a
// minute: clients may send such requests as often as they like. An empty key that
// empty_key is written for is no news.
func (h *Handler) noteEmpty(z *Zone, options noValue, req *request) {
	for i, o := range valueOptions {
		if options&o.option == 0 {
			continue
		}
		z.counters.empty[i].Inc()
		if o.option == noKey && z.EmptyKey != "" || !z.use.noValueLog[i].due(time.Minute) {
			continue
		}
		name := z.emptyName(o.name, req)
		h.logger.Warn("placeholder has no value in a request",
			zap.String("zone", z.Name), zap.String("option", o.name), zap.String("placeholder", "{"+name+"}"),
			zap.String("effect", o.effect), zap.String("usual_cause", usualCause(name)))
	}
}

// emptyName returns the first placeholder of an option that has no value in the request, or
// none that counts: a host can be a dot.
func (z *Zone) emptyName(option string, req *request) (first string) {
	for _, use := range z.names() {
		if use.option != option {
			continue
		}
		if ownValue(use.name, placeholder(use.name, req.vars, req.repl)) == "" {
			return use.name
		}
		if first == "" {
			first = use.name
		}
	}
	return first
}

// ownValue returns the value of a placeholder in a key. That of an address is empty if the
// client came by a unix socket without a name, which Caddy calls @.
func ownValue(name, value string) string {
	if value == "@" && (name == clientIPName || name == "client_ip" || strings.HasPrefix(name, "http.request.remote")) {
		return ""
	}
	return value
}

// empty reports whether a placeholder of the value has none in the request, which the value
// was expanded for, with an error or not.
func (t *valueTemplate) empty(repl *caddy.Replacer, err error) bool {
	switch {
	case !t.dynamic:
		return false
	case t.single != "":
		if err == nil {
			return false // "" is neither a number nor a duration
		}
		value, _ := repl.Get(t.single)
		return caddy.ToString(value) == ""
	}
	for _, name := range namesIn(t.text) {
		if value, _ := repl.Get(name); caddy.ToString(value) == "" {
			return true
		}
	}
	return false
}

// usualCauses say why a placeholder has no value, by what its name begins with. The first
// that fits is the one.
var usualCauses = []struct{ names, cause string }{
	{authNames, "sliding_window runs before basic_auth and forward_auth; write both in a route, the authentication first"},
	{clientIPName, causeUnix},
	{"client_ip", causeUnix},
	{"http.request.remote", causeUnix + "; or it came before the TLS handshake was complete, and Caddy does not trust the address yet"},
	{"http.request.header.", "the request has no such header field; fields that request_header or forward_auth set come later"},
	{"http.request.cookie.", "the request has no such cookie"},
	{"http.request.uri.query", "the URI has no such query"},
	{"http.request.orig_uri.", "the URI of the request is shorter"},
	{"http.request.uri.", "the URI of the request is shorter"},
	{"http.request.host.labels.", "the host of the request is shorter"},
	{"http.request.tls.client.", "the client showed no certificate"},
	{"http.request.tls.", "the request came without TLS"},
	{"http.vars.", "no vars directive before sliding_window has set it"},
	{"http.regexp.", "no matcher of that name has matched the request before sliding_window"},
	{"http.matchers.", "no matcher before sliding_window has set it; those of try_files come later"},
	{"http.reverse_proxy.", "it is known only after the request was handled"},
	{"http.intercept.", "it is known only after the request was handled"},
	{"http.response.", "it is known only after the request was handled"},
	{"http.error", "it is known only in handle_errors"},
	{"http.sliding_window.", "no sliding_window before this one has decided on the request"},
	{"env.", "the variable of the environment is not set"},
	{"http.request.", "the request has none"},
	{"", "no map, and no other handler before sliding_window, has given it a value"},
}

const causeUnix = "the request came by a unix socket, and its client has no address; " +
	"set trusted_proxies_unix, and have the proxy send X-Forwarded-For"

func usualCause(name string) string {
	for _, c := range usualCauses {
		if strings.HasPrefix(name, c.names) {
			return c.cause
		}
	}
	return ""
}
