// Package routes reads the routes of a configuration that loads: what comes before a zone, and which handler
// gives a placeholder its value.
package routes

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
)

// zoneSearch finds the handler that has a zone.
type zoneSearch struct {
	name string
	// has reports whether a handler that is loaded has it; known is false for handlers of other kinds.
	has func(caddyhttp.MiddlewareHandler) (has, known bool)
}

// UnseenPaths returns the paths that can never match on the way to the zone of a name, or in its own matchers,
// because handle_path or another handler before the zone strips their beginning. Call it before these matchers are loaded.
func UnseenPaths(ctx caddy.Context, name string, matchers caddyhttp.RawMatcherSets) (paths []string, takenOff string) {
	z := zoneSearch{name: name}
	prefix, paths := z.strippedBefore(ctx)
	if prefix == "" {
		return nil, ""
	}
	for _, set := range matchers {
		for matcher, raw := range set {
			var config any
			if json.Unmarshal(raw, &config) == nil { // else Caddy reports it
				paths = append(paths, pathsUnder(prefix, matcher, config)...)
			}
		}
	}
	return paths, prefix
}

// strippedBefore returns the prefix that handlers before the zone strip from the path of every request, and the
// paths that the routes to the zone can therefore never match.
func (z *zoneSearch) strippedBefore(ctx caddy.Context) (prefix string, paths []string) {
	for _, module := range ctx.Modules() {
		subroute, ok := module.(*caddyhttp.Subroute)
		if !ok {
			continue
		}
		for i := range subroute.Routes {
			route := &subroute.Routes[i]
			here := len(route.HandlersRaw) > 0 // the first that is not loaded yet
			if here && prefix != "" {
				paths = append(paths, matchedUnder(prefix, route.MatcherSets)...)
			}
			if here || len(route.MatcherSets) == 0 {
				prefix += z.strippedBy(route)
			}
			if here {
				break
			}
		}
	}
	return prefix, paths
}

// strippedBy returns the prefix that handlers of a route strip from the path. Of those that are not
// loaded, only the ones before the zone count.
func (z *zoneSearch) strippedBy(route *caddyhttp.Route) string {
	prefix := ""
	for _, handler := range route.Handlers {
		if r, ok := handler.(*rewrite.Rewrite); ok {
			prefix += r.StripPathPrefix
		}
	}
	for _, raw := range route.HandlersRaw {
		var handler struct {
			Name   string `json:"handler"`
			Prefix string `json:"strip_path_prefix"`
		}
		var config any
		if json.Unmarshal(raw, &handler) != nil || json.Unmarshal(raw, &config) != nil || z.isIn(config) {
			break
		}
		if handler.Name == "rewrite" {
			prefix += handler.Prefix
		}
	}
	return prefix
}

// IsBeforeAuthentication reports whether a server of the configuration authenticates clients
// only after the zone of a name. has reports whether a handler that is loaded is one with zones, and has it.
func IsBeforeAuthentication(ctx caddy.Context, name string, has func(caddyhttp.MiddlewareHandler) (has, known bool)) bool {
	z := &zoneSearch{name, has}
	for server := range servers(ctx) {
		o := orderOf{zone: z}
		o.routes(server.Routes)
		if o.later {
			return true
		}
	}
	return false
}

// orderOf notes whether a zone comes first, and authentication later, in the order in which
// handlers run. A request that comes to a route which is the last, or one of a group, does
// not come to the others: they are no sequence.
type orderOf struct {
	zone                       *zoneSearch
	authenticated, seen, later bool
}

func (o *orderOf) authentication() {
	o.authenticated = true
	o.later = o.later || o.seen
}

func (o *orderOf) routes(routes caddyhttp.RouteList) {
	for _, route := range routes {
		authenticated, seen := o.authenticated, o.seen
		for _, handler := range route.Handlers {
			if has, known := o.zone.has(handler); known {
				o.seen = o.seen || !o.authenticated && has
				continue
			}
			switch h := handler.(type) {
			case *caddyhttp.Subroute:
				o.routes(h.Routes)
			case caddy.Module:
				if h.CaddyModule().ID == "http.handlers.authentication" {
					o.authentication()
				}
			}
		}
		for _, raw := range route.HandlersRaw { // if it is not loaded yet
			var config any
			if json.Unmarshal(raw, &config) == nil {
				o.config(config)
			}
		}
		if route.Terminal || route.Group != "" {
			o.authenticated, o.seen = authenticated, seen
		}
	}
}

// config is routes for what is not loaded yet.
func (o *orderOf) config(config any) {
	switch v := config.(type) {
	case []any:
		for _, e := range v {
			o.config(e)
		}
	case map[string]any:
		switch v["handler"] {
		case "authentication":
			o.authentication()
		case "sliding_window":
			o.seen = o.seen || !o.authenticated && o.zone.isIn(v)
		case "subroute":
			o.config(v["routes"])
		case nil: // a route
			authenticated, seen := o.authenticated, o.seen
			o.config(v["handle"])
			if v["terminal"] == true || v["group"] != nil {
				o.authenticated, o.seen = authenticated, seen
			}
		}
	}
}

// isIn reports whether the configuration of a handler is one with the zone, or holds one.
func (z *zoneSearch) isIn(config any) bool {
	switch v := config.(type) {
	case []any:
		return slices.ContainsFunc(v, z.isIn)
	case map[string]any:
		if zones, ok := v["zones"].([]any); ok && v["handler"] == "sliding_window" {
			return slices.ContainsFunc(zones, func(e any) bool {
				zone, ok := e.(map[string]any)
				return ok && zone["name"] == z.name
			})
		}
		for _, e := range v {
			if z.isIn(e) {
				return true
			}
		}
	}
	return false
}

// matchedUnder returns the paths under a prefix that loaded matchers name.
func matchedUnder(prefix string, sets caddyhttp.MatcherSets) []string {
	var paths []string
	for _, set := range sets {
		for _, matcher := range set {
			if m, ok := matcher.(*caddyhttp.MatchPath); ok {
				for _, path := range *m {
					if isUnder(prefix, path) {
						paths = append(paths, path)
					}
				}
			}
		}
	}
	return paths
}

// pathsUnder returns the paths under a prefix that a matcher as configured names.
func pathsUnder(prefix, matcher string, config any) []string {
	var paths []string
	add := func(path string) {
		if isUnder(prefix, path) {
			paths = append(paths, path)
		}
	}
	switch matcher {
	case "path":
		template.EachText(config, add)
	case "path_regexp":
		if m, ok := config.(map[string]any); ok {
			pattern, _ := m["pattern"].(string)
			add(strings.TrimPrefix(pattern, "^"))
		}
	case "expression":
		template.EachText(config, func(text string) {
			for _, quoted := range quotedPath.FindAllStringSubmatch(text, -1) {
				add(quoted[1])
			}
		})
	case "not":
		sets, _ := config.([]any)
		for _, set := range sets {
			matchers, _ := set.(map[string]any)
			for name, c := range matchers {
				paths = append(paths, pathsUnder(prefix, name, c)...)
			}
		}
	}
	return paths
}

var quotedPath = regexp.MustCompile("[\"'`](/[^\"'`]*)[\"'`]")

// isUnder reports whether a path, which may end in an asterisk, begins with a prefix. Caddy
// compares both without regard to case.
func isUnder(prefix, path string) bool {
	prefix, path = strings.ToLower(prefix), strings.ToLower(path)
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/' || rest[0] == '*')
}
