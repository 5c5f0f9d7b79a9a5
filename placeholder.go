package slidingwindow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/template"
)

// checkMatcherNames refuses matchers with a placeholder that never has a value.
func (z *Zone) checkMatcherNames() error {
	for _, set := range z.MatcherSetsRaw {
		for _, matcher := range slices.Sorted(maps.Keys(set)) {
			for _, name := range template.NamesInMatcher(set[matcher]) {
				if err := template.CheckKnown(name); err != nil {
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
	add("key", template.Names(z.Key))
	for _, l := range z.Limits {
		add("limit", template.Names(string(l.Max)))
		add("limit", template.Names(string(l.Window)))
	}
	add("cost", template.Names(string(z.Cost)))
	if z.Algorithm != nil {
		for _, f := range z.Algorithm.Fields {
			add("fields", template.Names(f.Value))
		}
	}
	for _, set := range z.MatcherSetsRaw {
		for _, matcher := range slices.Sorted(maps.Keys(set)) {
			add("match", template.NamesInMatcher(set[matcher]))
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
	if z.Key != "" && z.Key != constantKey && len(template.Names(z.Key)) == 0 {
		fields := []zap.Field{zap.String("zone", z.Name), zap.String("key", z.Key)}
		if name := template.NameInText(z.Key); name != "" {
			fields = append(fields, zap.String("probably_meant", template.Written(name)))
		}
		logger.Warn("key holds no placeholder, so that all requests share one counter; write key all if that is meant", fields...)
	}
	for _, use := range z.names() {
		if strings.HasPrefix(use.name, template.AuthNames) && z.isBeforeAuthentication(ctx) {
			logger.Warn("placeholder has no value yet: authentication comes after sliding_window; write both in a route, the authentication first",
				zap.String("zone", z.Name), zap.String("option", use.option), zap.String("placeholder", "{"+use.name+"}"))
			continue
		}
		if strings.HasPrefix(use.name, template.RequestNames) || use.option != "match" && use.name == "client_ip" {
			continue
		}
		meant := template.MeantBy(use.name)
		if meant == "" || defines(ctx, use.name) {
			continue
		}
		// To Caddy all variables are known, as they may be set or not.
		if strings.HasPrefix(use.name, "http.vars.") || !template.CaddyKnows(use.name) {
			logger.Warn("placeholder is not one of Caddy's and has no value unless another module defines it",
				zap.String("zone", z.Name), zap.String("option", use.option),
				zap.String("placeholder", "{"+use.name+"}"), zap.String("probably_meant", template.Written(meant)))
		}
	}
}
