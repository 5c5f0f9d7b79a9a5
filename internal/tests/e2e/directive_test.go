package e2e_test

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// registerDirective registers a handler, and a directive of its name without arguments.
func registerDirective(name string, serve func(http.ResponseWriter, *http.Request, caddyhttp.Handler) error) {
	h := testHandler{name, serve}
	caddy.RegisterModule(h)
	httpcaddyfile.RegisterHandlerDirective(name, func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) { return h, nil })
}

// testHandler is a handler of registerDirective.
type testHandler struct {
	name  string
	serve func(http.ResponseWriter, *http.Request, caddyhttp.Handler) error
}

func (h testHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: caddy.ModuleID("http.handlers." + h.name), New: func() caddy.Module { return &h }}
}

func (h testHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.serve(w, r, next)
}
