package template

import "strings"

// OwnValue returns the value of a placeholder in a key. That of an address is empty if the
// client came by a unix socket without a name, which Caddy calls @.
func OwnValue(name, value string) string {
	if value == "@" && (name == clientIPName || name == "client_ip" || strings.HasPrefix(name, "http.request.remote")) {
		return ""
	}
	return value
}

// usualCauses say why a placeholder has no value, by what its name begins with. The first
// that fits is the one.
var usualCauses = []struct{ names, cause string }{
	{AuthNames, "sliding_window runs before basic_auth and forward_auth; write both in a route, the authentication first"},
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

func UsualCause(name string) string {
	for _, c := range usualCauses {
		if strings.HasPrefix(name, c.names) {
			return c.cause
		}
	}
	return ""
}
