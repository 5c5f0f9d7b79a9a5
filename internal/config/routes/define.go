package routes

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	maphandler "github.com/caddyserver/caddy/v2/modules/caddyhttp/map"
)

// Defines reports whether a handler of the configuration gives a placeholder its value: map,
// or vars. Where the handler is does not matter.
func Defines(ctx caddy.Context, placeholder string) bool {
	for server := range servers(ctx) {
		if routesDefine(server.Routes, placeholder) || server.Errors != nil && routesDefine(server.Errors.Routes, placeholder) {
			return true
		}
		for _, route := range server.NamedRoutes {
			if route != nil && routesDefine(caddyhttp.RouteList{*route}, placeholder) {
				return true
			}
		}
	}
	return false
}

// servers returns the HTTP servers of the configuration that loads.
func servers(ctx caddy.Context) iter.Seq[*caddyhttp.Server] {
	return func(yield func(*caddyhttp.Server) bool) {
		for _, module := range ctx.Modules() {
			app, ok := module.(*caddyhttp.App)
			if !ok {
				continue
			}
			for _, server := range app.Servers {
				if server != nil && !yield(server) {
					return
				}
			}
		}
	}
}

// routesDefine is defines for routes, of which Caddy may not have loaded all handlers yet.
func routesDefine(routes caddyhttp.RouteList, placeholder string) bool {
	for i := range routes {
		for _, raw := range routes[i].HandlersRaw {
			var config any
			if json.Unmarshal(raw, &config) == nil && configDefines(config, placeholder) {
				return true
			}
		}
		for _, handler := range routes[i].Handlers {
			if handlerDefines(handler, placeholder) {
				return true
			}
		}
	}
	return false
}

func handlerDefines(handler caddyhttp.MiddlewareHandler, placeholder string) bool {
	switch h := handler.(type) {
	case *maphandler.Handler:
		return slices.Contains(h.Destinations, placeholder)
	case *caddyhttp.VarsMiddleware:
		variable, ok := strings.CutPrefix(placeholder, "http.vars.")
		_, set := (*h)[variable]
		return ok && set
	case *caddyhttp.Subroute:
		return routesDefine(h.Routes, placeholder) || h.Errors != nil && routesDefine(h.Errors.Routes, placeholder)
	}
	return false
}

// configDefines is defines for a handler as configured.
func configDefines(config any, placeholder string) bool {
	switch v := config.(type) {
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return configDefines(e, placeholder) })
	case map[string]any:
		switch v["handler"] {
		case "map":
			destinations, _ := v["destinations"].([]any)
			return slices.Contains(destinations, any("{"+placeholder+"}"))
		case "vars":
			variable, ok := strings.CutPrefix(placeholder, "http.vars.")
			_, set := v[variable]
			return ok && set
		}
		for _, e := range v {
			if configDefines(e, placeholder) {
				return true
			}
		}
	}
	return false
}
