// Package placeholders warns of placeholders of a zone that are most likely a mistake, and reports those
// that have no value in a request.
package placeholders

import (
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/routes"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
)

// Use is a placeholder and the option that holds it.
type Use struct{ Option, Name string }

// constantKey is the key of a zone that counts all requests together on purpose.
const constantKey = "all"

// Warn logs what is most likely a mistake in a zone, but may be meant: a key without a placeholder, a key that clients
// choose as it is an address in a header field, and a name that resembles one of Caddy's. The key is empty for the default.
// has reports whether a handler has the zone, if it is one with zones. Call Warn before the matchers are loaded.
func Warn(ctx caddy.Context, zone, key string, uses []Use, has func(caddyhttp.MiddlewareHandler) (has, known bool)) {
	logger := ctx.Logger()
	if key != "" && key != constantKey && len(template.Names(key)) == 0 {
		fields := []zap.Field{zap.String("zone", zone), zap.String("key", key)}
		if name := template.NameInText(key); name != "" {
			fields = append(fields, zap.String("probably_meant", template.Written(name)))
		}
		logger.Warn("key holds no placeholder, so that all requests share one counter; write key all if that is meant", fields...)
	}
	for _, use := range uses {
		if strings.HasPrefix(use.Name, template.AuthNames) && routes.IsBeforeAuthentication(ctx, zone, has) {
			logger.Warn("placeholder has no value yet: authentication comes after sliding_window; write both in a route, the authentication first",
				zap.String("zone", zone), zap.String("option", use.Option), zap.String("placeholder", template.Short("{"+use.Name+"}")))
			continue
		}
		if meant := template.TrustedFor(use.Name); meant != "" && use.Option == "key" {
			logger.Warn("key is an address that any client can write into a header field; write {client_ip}, and trusted_proxies for the proxies that set the field",
				zap.String("zone", zone), zap.String("placeholder", template.Short("{"+use.Name+"}")), zap.String("probably_meant", template.Written(meant)))
		}
		if strings.HasPrefix(use.Name, template.RequestNames) || use.Option != "match" && use.Name == "client_ip" {
			continue
		}
		meant := template.MeantBy(use.Name)
		if meant == "" || routes.Defines(ctx, use.Name) {
			continue
		}
		// To Caddy all variables are known, as they may be set or not.
		if strings.HasPrefix(use.Name, "http.vars.") || !template.CaddyKnows(use.Name) {
			logger.Warn("placeholder is not one of Caddy's and has no value unless another module defines it",
				zap.String("zone", zone), zap.String("option", use.Option),
				zap.String("placeholder", template.Short("{"+use.Name+"}")), zap.String("probably_meant", template.Written(meant)))
		}
	}
}
