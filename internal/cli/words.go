package cli

import (
	"errors"
	"fmt"
	"strings"
)

// flags has the flags for fields of bodies, and for a header field.
var flags = map[string]string{
	"request.uri": "url", "request.remote": "remote", "request.method": "method", "request.headers": "header", "request.server": "server",
	"zone": "zone", "store": "store", "key": "key", "values": "value", "cidr": "cidr", "pattern": "pattern", "limits": "limit", "factor": "factor", "concurrent": "concurrent",
	"id": "id", "ttl": "ttl", "until": "until", "reason": "reason", "by": "by", "count": "count", "since": "since", "format": "format", "If-Match": "if-match",
}

// commands maps to commands and flags the paths of the endpoint and for fields. The first that fits is taken.
var commands = strings.NewReplacer(
	"GET /sliding_window/zones", "caddy sliding-window zones",
	"GET /sliding_window/status", "caddy sliding-window status",
	"GET /sliding_window/bans", "caddy sliding-window bans",
	"or values or cidr", "or --value or --cidr",
	"with key, since or all", "with --key, --since or --all",
	"POST /sliding_window/overrides/list lists them", "caddy sliding-window override list shows them",
	"send values, in order", "write --value for each, in order",
	"send values", "write --value for each placeholder of the key",
	"send key or values", "write --key or --value",
	"send key", "write --key",
	"send deny", "write --deny",
	"send all", "write --all",
	"send limits", "write --limit",
	"send concurrent", "write --concurrent",
	"send cidr", "write --cidr",
	"send server", "write --server",
	"send ", "write ",
)

// inWordsOfFlags returns an error of the endpoint, about a body or a path, as one about flags and commands.
func inWordsOfFlags(err error) error {
	text := commands.Replace(err.Error())
	field, rest, _ := strings.Cut(text, ": ")
	if name, ok := flags[field]; ok {
		text = "--" + name + ": " + rest
	}
	return errors.New(text)
}

// counted returns a number of things in words, such as 1 zone.
func counted[N int | int64](n N, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}
