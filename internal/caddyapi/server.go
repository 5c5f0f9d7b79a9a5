package caddyapi

import (
	"reflect"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// TrustsProxies reports whether a server that runs may take the address of a client from a header field. Caddy does not
// export what it has loaded for trusted_proxies: if that cannot be told, the server does.
func TrustsProxies(s *caddyhttp.Server) bool {
	of := reflect.ValueOf(s).Elem()
	if source := of.FieldByName("trustedProxies"); source.Kind() != reflect.Interface || !source.IsNil() {
		return true
	}
	unix := of.FieldByName("TrustedProxiesUnix") // since Caddy v2.11
	return unix.IsValid() && !unix.IsZero() || s.TrustedProxiesRaw != nil
}
