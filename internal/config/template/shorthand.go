package template

import (
	"regexp"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// shorthandWords are the placeholders that Caddyfiles abbreviate, as a Caddyfile has them. A word that ends
// in a dot takes one of the operator's.
var shorthandWords = []string{
	"client_ip", "host", "hostport", "port", "method", "scheme", "uuid", "uri", "path", "dir", "file", "query", "?query",
	"remote", "remote_host", "remote_port", "orig_method", "orig_uri", "orig_path", "orig_dir", "orig_file", "orig_query",
	"tls_cipher", "tls_version", "tls_client_fingerprint", "tls_client_issuer", "tls_client_serial", "tls_client_subject",
	"header.", "cookie.", "labels.", "path.", "file.", "query.", "vars.", "re.",
}

// shortByLong has shorthandWords by the name that Caddy expands them to.
var shortByLong = sync.OnceValue(func() map[string]string {
	short := make(map[string]string, len(shorthandWords))
	for _, word := range shorthandWords {
		short[longName(word)] = word
	}
	return short
})

// Short returns a text with the shorthands of Caddyfiles in place of the names that Caddy expands them to:
// {client_ip} for {http.vars.client_ip}. People read it.
func Short(text string) string {
	for _, name := range Names(text) {
		if short := shortName(name); short != "" {
			text = strings.ReplaceAll(text, "{"+name+"}", "{"+short+"}")
		}
	}
	return text
}

// ShortIn does so in a text about placeholders, such as an error.
func ShortIn(text string) string {
	text = strings.ReplaceAll(text, Written(clientIPName), "{client_ip}")
	return placeholderInText.ReplaceAllStringFunc(text, func(found string) string {
		if short := shortName(strings.Trim(found, "{}")); short != "" { // none for one that is escaped
			return "{" + short + "}"
		}
		return found
	})
}

var placeholderInText = regexp.MustCompile(`\\?\{[a-z][\w.%?/,-]*\}`)

// shortName returns what Caddy expands to a name; empty if there is no such shorthand.
func shortName(name string) string {
	if short := shortByLong()[name]; short != "" {
		return short
	}
	for at := len(name); ; { // the longest prefix first
		if at = strings.LastIndexByte(name[:at], '.'); at < 0 {
			return ""
		}
		short := shortByLong()[name[:at+1]]
		if short == "" {
			continue
		}
		segment := caddyfile.Segment{{Text: "{" + short + name[at+1:] + "}"}}
		if shorthands().ApplyToSegment(&segment); segment[0].Text == "{"+name+"}" {
			return short + name[at+1:]
		}
	}
}
