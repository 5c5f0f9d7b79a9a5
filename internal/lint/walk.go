package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/fileserver"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/slidingwindow/caddy-sliding-window/internal/dryrun"
)

// flow is which requests come to a place in the routes of a server, as far as matchers tell. It never has fewer
// requests than come, so that what it excludes is never there.
type flow struct {
	over    string    // why no request comes; empty: some may
	paths   []pattern // of the requests that come
	taken   []pattern // paths of requests that are answered before, or that another route of a group takes
	methods []string  // nil: all
	hosts   []string  // nil: all
	// checked reports whether a handler before has authenticated the client, and authenticated whether it was one of Caddy's
	// module http.handlers.authentication, such as basic_auth.
	checked, authenticated bool
	// set has header fields that handlers before have written, and pinned placeholders that matchers hold to some values.
	set, pinned map[string]bool
	rewrites    int // of the request's path, host or method, so far
}

func newFlow() *flow {
	return &flow{paths: []pattern{{prefix: true}}, set: make(map[string]bool), pinned: make(map[string]bool)}
}

func (f *flow) clone() *flow {
	c := *f
	c.set, c.pinned = maps.Clone(f.set), maps.Clone(f.pinned)
	return &c
}

// forget forgets what matchers told, as the request was rewritten.
func (f *flow) forget() {
	n := newFlow()
	f.paths, f.taken, f.methods, f.hosts, f.pinned = n.paths, nil, nil, nil, n.pinned
	f.rewrites++
}

// skip takes out requests for paths, and finds out whether any are left.
func (f *flow) skip(taken []pattern) {
	f.taken = append(slices.Clone(f.taken), taken...)
	f.paths = slices.DeleteFunc(slices.Clone(f.paths), func(p pattern) bool { return coveredBy(p, f.taken) })
	if len(f.paths) == 0 && f.over == "" {
		f.over = "requests for " + texts(taken) + " go elsewhere before"
	}
}

// constrain leaves the requests that matchers match.
func (f *flow) constrain(sets caddyhttp.MatcherSets) {
	if len(sets) == 0 {
		return
	}
	union := matched(sets)
	if union.paths != nil {
		both := intersect(f.paths, union.paths)
		if both = slices.DeleteFunc(both, func(p pattern) bool { return coveredBy(p, f.taken) }); len(both) == 0 && f.over == "" {
			f.over = fmt.Sprintf("no request for %s comes here: requests have paths of %s", texts(union.paths), texts(f.paths))
			if len(f.taken) > 0 {
				f.over = fmt.Sprintf("no request for %s comes here: requests for %s go elsewhere before", texts(union.paths), texts(f.taken))
			}
		}
		f.paths = both
	}
	narrow := func(what string, have, want []string, fits func(a, b string) bool) []string {
		if want == nil {
			return have
		}
		if have == nil {
			return want
		}
		both := slices.DeleteFunc(slices.Clone(want), func(w string) bool {
			return !slices.ContainsFunc(have, func(h string) bool { return fits(h, w) })
		})
		if len(both) == 0 && f.over == "" {
			f.over = fmt.Sprintf("no request has the %s %s and %s", what, strings.Join(want, " "), strings.Join(have, " "))
		}
		return both
	}
	f.methods = narrow("method", f.methods, union.methods, func(a, b string) bool { return a == b })
	f.hosts = narrow("host", f.hosts, union.hosts, hostsMeet)
	for name := range union.pinned {
		f.pinned[name] = true
	}
	f.skip(union.not)
}

// hostsMeet reports whether a host may match both patterns.
func hostsMeet(a, b string) bool {
	return strings.ContainsAny(a+b, "*{") || strings.EqualFold(a, b)
}

// walk notes the zones in the routes of a server.
func (c *Config) walk(s *caddyhttp.Server, as *server) {
	w := walker{config: c, server: as, named: s.NamedRoutes}
	w.routes(s.Routes, newFlow())
	if s.Errors != nil {
		w.routes(s.Errors.Routes, newFlow())
	}
}

type walker struct {
	config *Config
	server *server
	named  map[string]*caddyhttp.Route
	depth  int // of invoke
}

// group is what is known of the routes of a group, of which a request takes one.
type group struct {
	taken []pattern
	all   bool // a route of it takes every request
	open  bool // a request may go on behind a route of it
}

// routes returns the requests that go on behind routes.
func (w *walker) routes(list caddyhttp.RouteList, f *flow) *flow {
	f = f.clone()
	groups := make(map[string]*group)
	for i := range list {
		route := &list[i]
		enter, g := f.clone(), new(group)
		if route.Group != "" {
			if groups[route.Group] == nil {
				groups[route.Group] = g
			}
			g = groups[route.Group]
			enter.skip(g.taken)
			if g.all && enter.over == "" {
				enter.over = "a handle or route before it takes every request"
			}
		}
		enter.constrain(route.MatcherSets)
		left := w.handlers(route.Handlers, enter)
		if enter.over != "" {
			continue
		}
		every, union := len(route.MatcherSets) == 0, matched(route.MatcherSets)
		ends := left.over != "" || route.Terminal
		switch {
		case ends && every && !g.open:
			f.over = left.over
			if f.over == "" {
				f.over = "a terminal route before it takes every request"
			}
		case ends && union.pure && !g.open:
			f.skip(union.paths)
		case !ends && left.rewrites > enter.rewrites:
			f.forget()
			for _, g := range groups {
				g.taken = nil
			}
		}
		if !ends && every {
			f.checked, f.authenticated, f.set = f.checked || left.checked, f.authenticated || left.authenticated, left.set
		}
		g.all, g.open = g.all || every, g.open || !ends
		if union.pure {
			g.taken = append(g.taken, union.paths...)
		}
	}
	return f
}

// handlers returns the requests that go on behind handlers.
func (w *walker) handlers(list []caddyhttp.MiddlewareHandler, f *flow) *flow {
	f = f.clone()
	for _, handler := range list {
		f = w.handler(handler, f)
	}
	return f
}

func (w *walker) handler(handler caddyhttp.MiddlewareHandler, f *flow) *flow {
	switch h := handler.(type) {
	case Handler:
		facts := h.Lint()
		for _, z := range facts.Zones {
			w.config.zones = append(w.config.zones, &zone{ZoneFacts: z, handler: facts, server: w.server, flow: f.clone()})
		}
	case *caddyhttp.Subroute:
		if h.Errors != nil {
			w.routes(h.Errors.Routes, newFlow())
		}
		return w.routes(h.Routes, f)
	case *caddyhttp.Invoke:
		if route := w.named[h.Name]; route != nil && w.depth < 8 {
			w.depth++
			defer func() { w.depth-- }()
			return w.routes(caddyhttp.RouteList{*route}, f)
		}
	case *rewrite.Rewrite:
		f.forget()
	case *headers.Handler:
		if h.Request != nil {
			for name := range h.Request.Set {
				f.set[strings.ToLower(name)] = true
			}
			for _, name := range h.Request.Delete {
				f.set[strings.ToLower(name)] = true
			}
		}
	case *reverseproxy.Handler:
		if len(h.HandleResponse) == 0 {
			f.end("reverse_proxy")
		}
		f.checked = true // forward_auth is one that goes on
	case *fileserver.FileServer:
		if !h.PassThru {
			f.end("file_server")
		}
	case *caddyhttp.StaticResponse:
		f.end("respond, redir or abort")
	case *caddyhttp.StaticError:
		f.end("error")
	default:
		w.other(handler, f)
	}
	return f
}

// other is a handler of another kind.
func (w *walker) other(handler caddyhttp.MiddlewareHandler, f *flow) {
	name := "unknown"
	if m, ok := handler.(caddy.Module); ok {
		name = m.CaddyModule().ID.Name()
	}
	switch {
	case name == "authentication":
		f.checked, f.authenticated = true, true
	case !dryrun.KeepsPath(name):
		f.forget()
	}
}

// end notes that a handler answers every request that comes to it.
func (f *flow) end(words string) {
	if f.over == "" {
		f.over = words + " before it answers every request"
	}
}
