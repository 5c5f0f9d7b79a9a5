package routes

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// ErrorFor returns the error to pass on for a denial if one of the server's error
// routes would answer it, else nil. Only matching the routes tells.
func ErrorFor(r *http.Request, status int, cause error) error {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Errors == nil || len(server.Errors.Routes) == 0 {
		return nil
	}
	if r.Context().Value(caddyhttp.ErrorCtxKey) != nil {
		return nil // an error of an error route is not answered
	}
	err := caddyhttp.Error(status, cause)
	if !routesAnswer(server.Errors.Routes, server.Errors.WithError(r, err)) {
		return nil
	}
	return err
}

func routesAnswer(routes caddyhttp.RouteList, r *http.Request) bool {
	for _, route := range routes {
		if len(route.MatcherSets) > 0 {
			if matches, err := route.MatcherSets.AnyMatchWithError(r); err == nil && !matches {
				continue
			}
		}
		for _, handler := range route.Handlers {
			subroute, ok := handler.(*caddyhttp.Subroute)
			if !ok || routesAnswer(subroute.Routes, r) {
				return true
			}
		}
	}
	return false
}
