package template

import (
	"slices"
	"strings"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
)

const clientIPName = "http.vars.client_ip"

// documentedNames are the placeholders that Caddy documents for requests. Unknown names are compared with them. Caddy decides what is known. A name that ends in
// a dot takes a word of the operator's.
var documentedNames = []string{
	clientIPName,
	"http.request.host", "http.request.hostport", "http.request.port",
	"http.request.method", "http.request.scheme", "http.request.proto", "http.request.proto_name",
	"http.request.remote", "http.request.remote.host", "http.request.remote.port",
	"http.request.local", "http.request.local.host", "http.request.local.port",
	"http.request.uri", "http.request.uri_escaped", "http.request.uri.path", "http.request.uri.path_escaped",
	"http.request.uri.path.dir", "http.request.uri.path.file", "http.request.uri.path.file.base", "http.request.uri.path.file.ext",
	"http.request.uri.query", "http.request.uri.query_escaped", "http.request.uri.prefixed_query",
	"http.request.orig_method", "http.request.orig_uri", "http.request.orig_uri.path",
	"http.request.orig_uri.path.dir", "http.request.orig_uri.path.file", "http.request.orig_uri.path.file_escaped",
	"http.request.orig_uri.query", "http.request.orig_uri.prefixed_query",
	"http.request.uuid", "http.request.duration", "http.request.duration_ms",
	"http.request.tls.version", "http.request.tls.cipher_suite", "http.request.tls.resumed", "http.request.tls.proto",
	"http.request.tls.proto_mutual", "http.request.tls.server_name", "http.request.tls.ech",
	"http.request.tls.client.fingerprint", "http.request.tls.client.public_key", "http.request.tls.client.public_key_sha256",
	"http.request.tls.client.certificate_pem", "http.request.tls.client.certificate_der_base64",
	"http.request.tls.client.issuer", "http.request.tls.client.serial", "http.request.tls.client.subject",
	"http.request.header.", "http.request.cookie.", "http.request.uri.query.", "http.request.uri.path.",
	"http.request.host.labels.", "http.request.orig_uri.path.",
	"http.request.tls.client.san.dns_names.", "http.request.tls.client.san.emails.",
	"http.request.tls.client.san.ips.", "http.request.tls.client.san.uris.",
}

// knownNames are those of documentedNames that this Caddy knows.
var knownNames = sync.OnceValue(func() []string {
	return slices.DeleteFunc(slices.Clone(documentedNames), func(name string) bool {
		if strings.HasSuffix(name, ".") {
			name += "0"
		}
		return !CaddyKnows(name)
	})
})

// nameByWord finds one of knownNames by what is left of it without what many share.
var nameByWord = sync.OnceValue(func() map[string]string {
	names := make(map[string]string)
	for _, name := range knownNames() {
		for _, shared := range []string{"", "http.vars.", RequestNames, RequestNames + "uri.", RequestNames + "tls.", RequestNames + "host."} {
			word, ok := strings.CutPrefix(name, shared)
			if word = squash(word); ok && names[word] == "" {
				names[word] = name
			}
		}
	}
	return names
})

// squash returns a name without what is easily mistaken in it. A final dot stays.
func squash(name string) string {
	word := strings.ReplaceAll(foreign.Squash(name), ".", "")
	if strings.HasSuffix(name, ".") {
		word += "."
	}
	return word
}

// MeantBy returns the placeholder of Caddy's that an unknown name was probably meant to
// be, or nothing: names that resemble none are those of maps and other modules.
func MeantBy(name string) string {
	if len(name) > 256 { // of which the comparison would take long
		return ""
	}
	meant := resembled(name)
	if meant == name {
		return ""
	}
	return meant
}

func resembled(name string) string {
	for _, of := range []string{"http.auth.", "auth.", "http.request.auth.", "http.request."} {
		if word, ok := strings.CutPrefix(name, of); ok && slices.Contains([]string{"user", "id", "user_id", "userid", "username"}, word) {
			return "http.auth.user.id"
		}
	}
	if name == "auth.user.id" || name == "http.request.auth.user.id" || name == "http.request.user.id" {
		return "http.auth.user.id"
	}
	word := name
	for _, prefix := range []string{"http.", "request.", "req."} {
		word = strings.TrimPrefix(word, prefix)
	}
	if variable, ok := strings.CutPrefix(word, "vars."); ok {
		if word := squash(variable); word == "clientip" || foreign.Meaning(foreign.Placeholder, word) == clientIPName {
			return clientIPName
		}
		return "" // of the operator
	}
	if meant := nearestName(word); meant != "" {
		return meant
	}
	// The name of a header field, a cookie and so on is the operator's.
	for dot := strings.LastIndexByte(word, '.'); dot > 0; dot = strings.LastIndexByte(word[:dot], '.') {
		if meant := nearestName(word[:dot+1]); meant != "" {
			return meant + word[dot+1:]
		}
	}
	return ""
}

// nearestName returns the documented name whose word is the same, or differs in one character
// or, if it is long, two. An id is not a misspelt ip.
func nearestName(word string) string {
	word = squash(word)
	if name, ok := nameByWord()[word]; ok {
		return name
	}
	if name := foreign.Meaning(foreign.Placeholder, word); name != "" {
		return name
	}
	open := strings.HasSuffix(word, ".")
	most := 0
	switch length := len(strings.TrimSuffix(word, ".")); {
	case length > 64, strings.HasSuffix(word, "id"):
		return ""
	case length >= 8:
		most = 2
	case length >= 5:
		most = 1
	}
	if distance, name := closest(word, open); distance <= most {
		return name
	}
	return ""
}

// closest returns the name whose word takes the fewest slips to become
// word, of several the first in the alphabet.
func closest(word string, open bool) (best int, name string) {
	best = len(word) + 1
	for other, of := range nameByWord() {
		if strings.HasSuffix(other, ".") != open {
			continue
		}
		if d := foreign.Slips(word, other); d < best || d == best && of < name {
			best, name = d, of
		}
	}
	return best, name
}
