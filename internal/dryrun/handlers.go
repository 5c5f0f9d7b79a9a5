package dryrun

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/fileserver"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// Handlers of Caddy on a trace, by the names of their modules.
var (
	// They change the request, or end in an error, and do nothing else.
	runOnWalk = map[string]bool{"vars": true, "map": true, "rewrite": true, "headers": true, "error": true}
	// They change the answer, the log or the body only.
	passedOnWalk = map[string]bool{
		"encode": true, "templates": true, "request_body": true, "tracing": true, "timeouts": true, "log_append": true, "intercept": true, "push": true,
	}
	// They answer.
	endOfWalk = map[string]bool{"static_response": true, "metrics": true}
)

// KeepsPath reports whether a handler, by the name of its module, changes neither path nor method of requests, and passes
// them on.
func KeepsPath(name string) bool {
	return passedOnWalk[name] || name == "vars" || name == "map"
}

// handler is a handler with the next one, for the trace.
func (w *Trace) handler(handler caddyhttp.MiddlewareHandler, next caddyhttp.Handler) caddyhttp.Handler {
	return caddyhttp.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) error {
		if status, passes, known, err := w.limit(w, handler, r); known {
			switch {
			case err != nil:
				return err
			case !passes:
				return caddyhttp.Error(status, errDenied)
			}
			return next.ServeHTTP(rw, r)
		}
		switch h := handler.(type) {
		case *caddyhttp.Subroute:
			return w.subroute(h, rw, r, next)
		case *caddyhttp.Invoke:
			route := w.server.NamedRoutes[h.Name]
			if route == nil {
				return caddyhttp.Error(http.StatusInternalServerError, nil)
			}
			return w.route(route, next).ServeHTTP(rw, r)
		case *reverseproxy.Handler:
			if len(h.HandleResponse) == 0 {
				return nil
			}
			for _, response := range h.HandleResponse { // forward_auth is one that goes on
				w.noteFields(response.Routes)
			}
		case *fileserver.FileServer:
			if !h.PassThru {
				return nil
			}
		}
		return w.module(handler, rw, r, next)
	})
}

// module runs a handler, or leaves it out, by the name of its module.
func (w *Trace) module(handler caddyhttp.MiddlewareHandler, rw http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	name := "unknown"
	if m, ok := handler.(caddy.Module); ok {
		name = m.CaddyModule().ID.Name()
	}
	switch {
	case runOnWalk[name]:
		err := handler.ServeHTTP(rw, r, next)
		w.NoteMissing()
		return err
	case endOfWalk[name]:
		return nil
	case !passedOnWalk[name]:
		w.Answer.NotRun = append(w.Answer.NotRun, name)
	}
	return next.ServeHTTP(rw, r)
}

func (w *Trace) subroute(h *caddyhttp.Subroute, rw http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	err := w.routes(h.Routes, next).ServeHTTP(rw, r)
	if err == nil || h.Errors == nil || w.Failed != nil {
		return err
	}
	return w.routes(h.Errors.Routes, next).ServeHTTP(rw, h.Errors.WithError(r, err))
}

// noteFields notes the fields of the request that handlers of routes set.
func (w *Trace) noteFields(routes caddyhttp.RouteList) {
	for _, route := range routes {
		for _, handler := range route.Handlers {
			switch h := handler.(type) {
			case *caddyhttp.Subroute:
				w.noteFields(h.Routes)
			case *headers.Handler:
				if h.Request == nil {
					continue
				}
				for _, fields := range []http.Header{h.Request.Set, h.Request.Add} {
					for field := range fields {
						w.fields = append(w.fields, "http.request.header."+field)
					}
				}
			}
		}
	}
}
