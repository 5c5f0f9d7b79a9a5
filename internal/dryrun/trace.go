// Package dryrun takes an example of a request through the routes of a server that runs.
package dryrun

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// Trace takes a request through the routes of a server, without an answer, and with none of the
// handlers that do more than change the request.
type Trace struct {
	limit    limiter
	server   *caddyhttp.Server
	portless bool // the port of the client is not known
	groups   map[string]bool
	Answer   control.RequestInspection

	// Placeholders that had no value here, since the last call of missing.
	asked []string
	// Fields of the header that handlers set which were not run, as placeholders.
	fields []string
	// Why the trace ended early, as an error of the API.
	Failed error
}

// limiter asks the zones of a handler about the request of a trace. It returns whether they let it pass, and the
// status otherwise. known is false for handlers of other kinds.
type limiter func(w *Trace, handler caddyhttp.MiddlewareHandler, r *http.Request) (status int, passes, known bool, err error)

// NewTrace returns a trace of a request, which is not prepared yet, through the server that gets it.
func NewTrace(app *caddyhttp.App, example *control.ExampleRequest, r *http.Request, limit limiter) (*Trace, error) {
	name, server, err := serverOf(app, example, r)
	if err != nil {
		return nil, err
	}
	w := &Trace{limit: limit, server: server, portless: strings.HasSuffix(r.RemoteAddr, ":0"), groups: make(map[string]bool)}
	w.Answer.Server, w.Answer.Zones = name, []control.EvaluatedZone{}
	return w, nil
}

// errDenied is what a zone answers on the trace. Error routes may have zones of their own.
var errDenied = errors.New("rate limit exceeded")

func (w *Trace) Run(r *http.Request) error {
	repl := caddy.NewEmptyReplacer()
	repl.Map(w.unknown) // before all others, of which some would need a connection
	repl.Map(caddy.NewReplacer().Get)
	rw := unread{}
	r = caddyhttp.PrepareRequest(r, repl, rw, w.server)
	w.dropFields(r)
	err := w.routes(w.server.Routes, end).ServeHTTP(rw, r)
	if err != nil && w.Failed == nil && w.server.Errors != nil {
		r = w.server.Errors.WithError(r, err)
		_ = w.routes(w.server.Errors.Routes, end).ServeHTTP(rw, r) // an error of error routes is the end
	}
	return w.Failed
}

var end = caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })

// dropFields drops the fields that a server drops because of their names. Those that the server is
// told to keep are few: they count as unknown.
func (w *Trace) dropFields(r *http.Request) {
	var drops string
	kept := 0
	for _, rule := range dropRules {
		list := reflect.ValueOf(w.server).Elem().FieldByName(rule.kept)
		if list.IsValid() {
			drops += rule.with
			kept += list.Len()
		}
	}
	for name := range r.Header {
		if !strings.ContainsAny(name, drops) {
			continue
		}
		if kept > 0 {
			w.fields = append(w.fields, "http.request.header."+name)
		}
		delete(r.Header, name)
	}
}

// dropRules say for which character in its name Caddy drops a field, and which list of a server names those that it
// keeps. A Caddy without the list, older than v2.11.5, drops none; v2.11.4, which drops those with _, is taken for one.
var dropRules = []struct{ with, kept string }{{"_", "ExpectedUnderscoreHeaders"}, {".", "ExpectedDotHeaders"}}

// unknown has the names of placeholders that need a connection, a body, or what was not run.
func (w *Trace) unknown(name string) (any, bool) {
	if !w.isUnknown(name) {
		return nil, false
	}
	if name = template.Short("{" + name + "}"); !slices.Contains(w.asked, name) {
		w.asked = append(w.asked, name)
	}
	return nil, true
}

func (w *Trace) isUnknown(name string) bool {
	has := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	switch {
	case has("http.request.tls."):
		return name != "http.request.tls.server_name"
	case has("http.request.body"), has("http.request.local"), has("http.request.proto"), has("http.request.uuid"), has("http.request.duration"):
		return true
	case name == "http.request.remote.port":
		return w.portless
	case has(template.AuthNames), has("http.reverse_proxy."):
		return len(w.Answer.NotRun) > 0
	}
	return slices.ContainsFunc(w.fields, func(field string) bool { return strings.EqualFold(field, name) })
}

// Missing returns the placeholders that had no value since the last call.
func (w *Trace) Missing() []string {
	asked := w.asked
	w.asked = nil
	return asked
}

// NoteMissing notes what decided on the way of the request.
func (w *Trace) NoteMissing() {
	for _, name := range w.Missing() {
		if !slices.Contains(w.Answer.Unknown, name) {
			w.Answer.Unknown = append(w.Answer.Unknown, name)
		}
	}
}

// routes is caddyhttp.RouteList.Compile for the trace.
func (w *Trace) routes(routes caddyhttp.RouteList, next caddyhttp.Handler) caddyhttp.Handler {
	for i := range slices.Backward(routes) {
		next = w.route(&routes[i], next)
	}
	return next
}

// route is caddyhttp.Route.Compile for the trace.
func (w *Trace) route(route *caddyhttp.Route, next caddyhttp.Handler) caddyhttp.Handler {
	return caddyhttp.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) error {
		if route.Group != "" && w.groups[route.Group] {
			return next.ServeHTTP(rw, r)
		}
		matches, err := route.MatcherSets.AnyMatchWithError(r)
		w.NoteMissing()
		if err != nil {
			return err
		}
		if !matches {
			return next.ServeHTTP(rw, r)
		}
		if route.Group != "" {
			w.groups[route.Group] = true
		}
		stack := next
		if route.Terminal {
			stack = end
		}
		for _, handler := range slices.Backward(route.Handlers) {
			stack = w.handler(handler, stack)
		}
		return stack.ServeHTTP(rw, r)
	})
}

// serverOf returns the server that gets the request.
func serverOf(app *caddyhttp.App, example *control.ExampleRequest, r *http.Request) (string, *caddyhttp.Server, error) {
	if example.Server != "" {
		s := app.Servers[example.Server]
		if s == nil {
			return "", nil, refused(http.StatusNotFound, errors.New("request.server: no server of this name runs; use its name in the JSON of the configuration"))
		}
		return example.Server, s, nil
	}
	port, err := strconv.ParseUint(example.Port(), 10, 16)
	switch {
	case example.Port() == "" && r.TLS != nil:
		port = uint64(orDefault(app.HTTPSPort, caddyhttp.DefaultHTTPSPort))
	case example.Port() == "":
		port = uint64(orDefault(app.HTTPPort, caddyhttp.DefaultHTTPPort))
	case err != nil:
		return "", nil, refused(http.StatusBadRequest, errors.New("request.uri: the port is not valid"))
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(app.Servers)) {
		if listensOn(app.Servers[name], uint(port)) {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		return "", nil, refused(http.StatusNotFound, errors.New("request.uri: no server listens on the port; write the port of the site, or send server"))
	case 1:
		return names[0], app.Servers[names[0]], nil
	}
	return "", nil, refused(http.StatusBadRequest, fmt.Errorf("request.server: required, as several servers listen on the port; use one of %s", strings.Join(names, ", ")))
}

func orDefault(port, standard int) int {
	if port == 0 {
		return standard
	}
	return port
}

func listensOn(s *caddyhttp.Server, port uint) bool {
	return slices.ContainsFunc(s.Listen, func(listen string) bool {
		a, err := caddy.ParseNetworkAddress(listen)
		return err == nil && !a.IsUnixNetwork() && a.StartPort <= port && port <= a.EndPort
	})
}

func refused(status int, err error) error { return caddy.APIError{HTTPStatus: status, Err: err} }

// unread is an answer that is not read.
type unread struct{}

func (unread) Header() http.Header         { return make(http.Header) }
func (unread) Write(p []byte) (int, error) { return len(p), nil }
func (unread) WriteHeader(int)             {}
