package slidingwindow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/template"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// inspectRequest says which zones count an example of a request, and what they would decide.
func inspectRequest(ctx context.Context, example *control.Request) (int, any, error) {
	r, err := example.HTTP(context.Background()) // values of ctx are those of the admin endpoint
	if err != nil {
		return 0, nil, apiError(http.StatusBadRequest, err)
	}
	app, err := caddy.ActiveContext().AppIfConfigured("http")
	if err != nil {
		return 0, nil, apiError(http.StatusNotFound, errors.New("request: no HTTP server runs"))
	}
	name, server, err := serverOf(app.(*caddyhttp.App), example, r)
	if err != nil {
		return 0, nil, err
	}
	w := &walk{ctx: ctx, server: server, portless: strings.HasSuffix(r.RemoteAddr, ":0"), groups: make(map[string]bool)}
	w.answer.Server, w.answer.Zones = name, []control.MetZone{}
	if err := w.run(r); err != nil {
		return 0, nil, err
	}
	w.answer.WouldPass = wouldPass(w.answer.Zones)
	return http.StatusOK, &w.answer, nil
}

// wouldPass reports whether all zones admit the request; nil if that is not known.
func wouldPass(zones []control.MetZone) *bool {
	passes, known := true, true
	for _, z := range zones {
		switch {
		case z.Shadow:
		case z.Unknown != nil:
			known = false
		case z.Inspection == nil || !z.WouldPass:
			passes = false
		}
	}
	if passes && !known {
		return nil
	}
	return &passes
}

// serverOf returns the server that gets the request.
func serverOf(app *caddyhttp.App, example *control.Request, r *http.Request) (string, *caddyhttp.Server, error) {
	if example.Server != "" {
		s := app.Servers[example.Server]
		if s == nil {
			return "", nil, apiError(http.StatusNotFound, errors.New("request.server: no server of this name runs; use its name in the JSON of the configuration"))
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
		return "", nil, apiError(http.StatusBadRequest, errors.New("request.uri: the port is not valid"))
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(app.Servers)) {
		if listensOn(app.Servers[name], uint(port)) {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		return "", nil, apiError(http.StatusNotFound, errors.New("request.uri: no server listens on the port; write the port of the site, or send server"))
	case 1:
		return names[0], app.Servers[names[0]], nil
	}
	return "", nil, apiError(http.StatusBadRequest, fmt.Errorf("request.server: required, as several servers listen on the port; use one of %s", joinWords(names)))
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

// walk takes a request through the routes of a server, without an answer, and with none of the
// handlers that do more than change the request.
type walk struct {
	ctx      context.Context // of who asks
	server   *caddyhttp.Server
	portless bool // the port of the client is not known
	groups   map[string]bool
	answer   control.RequestInspection

	// Placeholders that had no value here, since the last call of missing.
	asked []string
	// Fields of the header that handlers set which were not run, as placeholders.
	fields []string
	// Why the walk ended early, as an error of the API.
	failed error
}

// errDenied is what a zone answers on the walk. Error routes may have zones of their own.
var errDenied = errors.New("rate limit exceeded")

func (w *walk) run(r *http.Request) error {
	repl := caddy.NewEmptyReplacer()
	repl.Map(w.unknown) // before all others, of which some would need a connection
	repl.Map(caddy.NewReplacer().Get)
	rw := unread{}
	r = caddyhttp.PrepareRequest(r, repl, rw, w.server)
	w.dropFields(r)
	err := w.routes(w.server.Routes, end).ServeHTTP(rw, r)
	if err != nil && w.failed == nil && w.server.Errors != nil {
		r = w.server.Errors.WithError(r, err)
		_ = w.routes(w.server.Errors.Routes, end).ServeHTTP(rw, r) // an error of error routes is the end
	}
	return w.failed
}

var end = caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })

// dropFields drops the fields that a server drops because of their names. Those that the server is
// told to keep are few: they count as unknown.
func (w *walk) dropFields(r *http.Request) {
	kept := len(w.server.ExpectedUnderscoreHeaders)+len(w.server.ExpectedDotHeaders) > 0
	for name := range r.Header {
		if !strings.ContainsAny(name, "_.") {
			continue
		}
		if kept {
			w.fields = append(w.fields, "http.request.header."+name)
		}
		delete(r.Header, name)
	}
}

// unknown has the names of placeholders that need a connection, a body, or what was not run.
func (w *walk) unknown(name string) (any, bool) {
	if !w.isUnknown(name) {
		return nil, false
	}
	if name = "{" + name + "}"; !slices.Contains(w.asked, name) {
		w.asked = append(w.asked, name)
	}
	return nil, true
}

func (w *walk) isUnknown(name string) bool {
	has := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	switch {
	case has("http.request.tls."):
		return name != "http.request.tls.server_name"
	case has("http.request.body"), has("http.request.local"), has("http.request.proto"), has("http.request.uuid"), has("http.request.duration"):
		return true
	case name == "http.request.remote.port":
		return w.portless
	case has(template.AuthNames), has("http.reverse_proxy."):
		return len(w.answer.NotRun) > 0
	}
	return slices.ContainsFunc(w.fields, func(field string) bool { return strings.EqualFold(field, name) })
}

// missing returns the placeholders that had no value since the last call.
func (w *walk) missing() []string {
	asked := w.asked
	w.asked = nil
	return asked
}

// noteMissing notes what decided on the way of the request.
func (w *walk) noteMissing() {
	for _, name := range w.missing() {
		if !slices.Contains(w.answer.Unknown, name) {
			w.answer.Unknown = append(w.answer.Unknown, name)
		}
	}
}

// routes is caddyhttp.RouteList.Compile for the walk.
func (w *walk) routes(routes caddyhttp.RouteList, next caddyhttp.Handler) caddyhttp.Handler {
	for i := range slices.Backward(routes) {
		next = w.route(&routes[i], next)
	}
	return next
}

// route is caddyhttp.Route.Compile for the walk.
func (w *walk) route(route *caddyhttp.Route, next caddyhttp.Handler) caddyhttp.Handler {
	return caddyhttp.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) error {
		if route.Group != "" && w.groups[route.Group] {
			return next.ServeHTTP(rw, r)
		}
		matches, err := route.MatcherSets.AnyMatchWithError(r)
		w.noteMissing()
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

// limit inspects the zones of h that count the request.
func (w *walk) limit(h *Handler, r *http.Request) (passes bool, err error) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	req := &request{repl: repl, vars: vars}
	var unknown []control.MetZone
	for _, z := range h.Zones {
		w.noteMissing()
		applies, err := z.applies(r)
		if err != nil {
			return false, err
		}
		key, empty := z.key.Expand(vars, repl)
		c, rule := z.chargeUnder(key, repl)
		missing := w.missing()
		switch {
		case !applies && missing == nil:
		case missing != nil:
			unknown = append(unknown, control.MetZone{Zone: z.Name, Unknown: missing, Shadow: z.enforced() == enforce.None})
		case empty && z.EmptyKey == emptySkip:
		case empty && z.EmptyKey == emptyDeny:
			shadow := !z.isKeyEnforced(req, z.enforced())
			w.answer.Zones = append(w.answer.Zones, control.MetZone{Zone: z.Name, EmptyKey: emptyDeny, Shadow: shadow})
			if shadow {
				continue
			}
			req.keyless = z
			req.publish()
			return false, nil
		case rule.Decides():
			i := h.newRunningZone(z).decidedBy(&c, rule)
			shadow := !z.isKeyEnforced(req, z.enforced())
			w.answer.Zones = append(w.answer.Zones, control.MetZone{Zone: z.Name, Shadow: shadow, Inspection: i})
			if rule.Deny && shadow {
				continue
			}
			if req.noteOverride(z, key, rule); rule.Deny {
				req.publish()
				return false, nil
			}
		default:
			req.noteOverride(z, key, rule)
			req.zones, req.charges = append(req.zones, z), append(req.charges, c)
		}
	}
	if len(req.charges) > 0 {
		if err := w.peek(h, req); err != nil {
			return false, err
		}
		req.publish()
	}
	w.answer.Zones = append(w.answer.Zones, unknown...)
	return len(req.charges) == 0 || req.allowed, nil
}

// peek inspects the charges of a request.
func (w *walk) peek(h *Handler, req *request) error {
	ds, by, cause, err := h.guard.peek(w.ctx, req.charges, h.OnError == onErrorLocal, h.Share)
	if err != nil {
		w.failed = h.newRunningZone(req.zones[0]).unavailable(err)
		return w.failed
	}
	req.decisions, req.allowed = ds, true
	for i, z := range req.zones {
		shadow := !z.isKeyEnforced(req, z.enforced())
		if shadow {
			own, _, _, err := h.guard.peekShadow(w.ctx, req.charges[i:i+1], h.OnError == onErrorLocal, h.Share)
			if err != nil {
				w.failed = h.newRunningZone(z).unavailable(err)
				return w.failed
			}
			copy(req.decisionsOf(i), own)
		} else if !window.Allowed(req.decisionsOf(i)) {
			req.allowed = false
		}
		running := h.newRunningZone(z)
		i := running.under(running.inspection(&req.charges[i], req.decisionsOf(i), by, cause), req.ruleHere(z.Name))
		w.answer.Zones = append(w.answer.Zones, control.MetZone{Zone: z.Name, Shadow: shadow, Inspection: i})
	}
	return nil
}

// unread is an answer that nobody reads.
type unread struct{}

func (unread) Header() http.Header         { return make(http.Header) }
func (unread) Write(p []byte) (int, error) { return len(p), nil }
func (unread) WriteHeader(int)             {}
