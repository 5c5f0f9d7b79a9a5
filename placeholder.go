package slidingwindow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/routes"
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
		if strings.HasPrefix(use.name, template.AuthNames) && routes.IsBeforeAuthentication(ctx, z.Name, z.isInHandler) {
			logger.Warn("placeholder has no value yet: authentication comes after sliding_window; write both in a route, the authentication first",
				zap.String("zone", z.Name), zap.String("option", use.option), zap.String("placeholder", "{"+use.name+"}"))
			continue
		}
		if strings.HasPrefix(use.name, template.RequestNames) || use.option != "match" && use.name == "client_ip" {
			continue
		}
		meant := template.MeantBy(use.name)
		if meant == "" || routes.Defines(ctx, use.name) {
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

// isInHandler reports whether a handler has a zone of the name, if it is one with zones.
func (z *Zone) isInHandler(handler caddyhttp.MiddlewareHandler) (has, known bool) {
	h, known := handler.(*Handler)
	return known && slices.ContainsFunc(h.Zones, func(o *Zone) bool { return o.Name == z.Name }), known
}

// warnOfPlace logs the paths that are matched in vain on the way to the zone, or by it, as
// handle_path has taken off what they begin with. Call it before the zone's matchers are
// loaded.
func (z *Zone) warnOfPlace(ctx caddy.Context) {
	paths, prefix := routes.UnseenPaths(ctx, z.Name, z.MatcherSetsRaw)
	for _, path := range paths {
		ctx.Logger().Warn("zone never sees the path that is matched: handle_path or strip_prefix has taken off its beginning; match what is left",
			zap.String("zone", z.Name), zap.String("path", path), zap.String("taken_off", prefix))
	}
}

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
		if o.option == noKey && z.EmptyKey != "" || !z.use.noValueLog[i].Due(time.Minute) {
			continue
		}
		name := z.emptyName(o.name, req)
		h.logger.Warn("placeholder has no value in a request",
			zap.String("zone", z.Name), zap.String("option", o.name), zap.String("placeholder", "{"+name+"}"),
			zap.String("effect", o.effect), zap.String("usual_cause", template.UsualCause(name)))
	}
}

// emptyName returns the first placeholder of an option that has no value in the request, or
// none that counts: a host can be a dot.
func (z *Zone) emptyName(option string, req *request) (first string) {
	for _, use := range z.names() {
		if use.option != option {
			continue
		}
		if template.OwnValue(use.name, template.Value(use.name, req.vars, req.repl)) == "" {
			return use.name
		}
		if first == "" {
			first = use.name
		}
	}
	return first
}
