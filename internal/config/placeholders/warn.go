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

// Mistake is what is most likely a mistake in a zone, but may be meant.
type Mistake struct {
	Kind Kind
	// Option holds the placeholder; both are empty for a ConstantKey.
	Option, Placeholder string
	// Meant is what was probably meant; empty if that is not known.
	Meant string
}

// Kind says what kind of mistake it is.
type Kind int

// The kinds of mistakes.
const (
	ConstantKey  Kind = iota // the key holds no placeholder
	Early                    // authentication gives the placeholder its value later
	ClaimedByAny             // the key is an address that any client can write into a header field
	Unknown                  // the placeholder is not one of Caddy's
)

// Find returns what is most likely a mistake in a zone: a key without a placeholder, a key that clients
// choose as it is an address in a header field, and a name that resembles one of Caddy's. The key is empty for the default.
// has reports whether a handler has the zone, if it is one with zones. Call Find before the matchers are loaded.
func Find(ctx caddy.Context, zone, key string, uses []Use, has func(caddyhttp.MiddlewareHandler) (has, known bool)) (found []Mistake) {
	if key != "" && key != constantKey && len(template.Names(key)) == 0 {
		found = append(found, Mistake{Kind: ConstantKey, Meant: template.NameInText(key)})
	}
	for _, use := range uses {
		if strings.HasPrefix(use.Name, template.AuthNames) && routes.IsBeforeAuthentication(ctx, zone, has) {
			found = append(found, Mistake{Kind: Early, Option: use.Option, Placeholder: use.Name})
			continue
		}
		if meant := template.TrustedFor(use.Name); meant != "" && use.Option == "key" {
			found = append(found, Mistake{Kind: ClaimedByAny, Option: use.Option, Placeholder: use.Name, Meant: meant})
		}
		if strings.HasPrefix(use.Name, template.RequestNames) || use.Option != "match" && use.Option != "ban" && use.Name == "client_ip" {
			continue
		}
		meant := template.MeantBy(use.Name)
		if meant == "" || routes.Defines(ctx, use.Name) {
			continue
		}
		// To Caddy all variables are known, as they may be set or not.
		if strings.HasPrefix(use.Name, "http.vars.") || !template.CaddyKnows(use.Name) {
			found = append(found, Mistake{Kind: Unknown, Option: use.Option, Placeholder: use.Name, Meant: meant})
		}
	}
	return found
}

// Warn logs the mistakes of a zone with a key.
func Warn(logger *zap.Logger, zone, key string, mistakes []Mistake) {
	for _, m := range mistakes {
		named, option := zap.String("zone", zone), zap.String("option", m.Option)
		placeholder, meant := zap.String("placeholder", template.Short("{"+m.Placeholder+"}")), zap.Skip()
		if m.Meant != "" {
			meant = zap.String("probably_meant", template.Written(m.Meant))
		}
		switch m.Kind {
		case ConstantKey:
			logger.Warn("key holds no placeholder, so that all requests share one counter; write key all if that is meant",
				named, zap.String("key", key), meant)
		case Early:
			logger.Warn("placeholder has no value yet: authentication comes after sliding_window; write both in a route, the authentication first",
				named, option, placeholder)
		case ClaimedByAny:
			logger.Warn("key is an address that any client can write into a header field; write {client_ip}, and trusted_proxies for the proxies that set the field",
				named, placeholder, meant)
		case Unknown:
			logger.Warn("placeholder is not one of Caddy's and has no value unless another module defines it",
				named, option, placeholder, meant)
		}
	}
}
