package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
)

type object = map[string]any

// transformer makes, of a configuration that serves, one that decides on the requests of a log and does nothing else.
type transformer struct {
	setting
	plan    *plan
	named   map[string]object // named routes of the server
	reaches map[string]bool   // whether named routes reach a zone
	stores  map[string]string // names, by the JSON of the store
}

// run returns the configuration to provision.
func (t *transformer) run(config object) object {
	apps, _ := config["apps"].(object)
	http, _ := apps["http"].(object)
	servers, _ := http["servers"].(object)
	limits := asObject(apps["sliding_window"])
	if limits == nil {
		limits = object{}
	}
	t.store(limits)
	delete(limits, "on_error")
	delete(limits, "share")
	running := object{}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		if server, ok := servers[name].(object); ok {
			running[name] = t.server(name, server)
		}
	}
	app := object{"servers": running}
	for _, port := range []string{"http_port", "https_port"} {
		if p, ok := http[port]; ok {
			app[port] = p
		}
	}
	kept := object{"module": storageName}
	if len(t.overrides) > 0 {
		kept["overrides"] = overridebook.Copy{Version: "replay", Records: t.overrides}
	}
	return object{
		"storage": kept,
		"admin":   object{"disabled": true, "config": object{"persist": false}},
		"logging": object{"logs": object{"default": object{"writer": object{"output": "discard"}}}},
		"apps":    object{"sliding_window": limits, "http": app},
	}
}

// store replaces the store of a handler, or of the app, by one on the log's clock.
func (t *transformer) store(of object) {
	text, _ := json.Marshal(of["store"]) // it was read as JSON
	name, ok := t.stores[string(text)]
	if !ok {
		name = t.name + " " + strconv.Itoa(len(t.stores)+1)
		t.stores[string(text)] = name
	}
	most := t.maxKeys
	if s, ok := of["store"].(object); !ok || s["module"] == "memory" {
		if n, err := strconv.ParseInt(fmt.Sprint(s["max_keys"]), 10, 64); err == nil && n > 0 {
			most = min(most, n)
		}
	}
	of["store"] = object{"module": storeName, "name": name, "max_keys": most}
}

// kept of a server: what decides how requests are read, and which of them reach a zone.
var keptOfServer = []string{
	"listen", "routes", "errors", "named_routes", "client_ip_headers", "trusted_proxies_strict", "trusted_proxies_unix",
	"strict_sni_host", "expected_underscore_headers", "expected_dot_headers",
}

func (t *transformer) server(name string, from object) object {
	s := object{"automatic_https": object{"disable": true}}
	for _, option := range keptOfServer {
		if v, ok := from[option]; ok {
			s[option] = v
		}
	}
	info := &server{name: name}
	info.readLogs(from["logs"])
	for _, listen := range list(s["listen"]) {
		info.listen = append(info.listen, fmt.Sprint(listen))
	}
	if source, ok := from["trusted_proxies"].(object); ok {
		if source["source"] == "static" {
			s["trusted_proxies"] = source
		} else {
			info.clientFromLog = true
		}
	}
	for _, policy := range list(from["tls_connection_policies"]) {
		if p, ok := policy.(object); ok && p["client_authentication"] != nil && s["strict_sni_host"] == nil {
			s["strict_sni_host"] = true // as Caddy does
		}
	}
	t.named, t.reaches = make(map[string]object), make(map[string]bool)
	for name, route := range asObject(from["named_routes"]) {
		t.named[name] = asObject(route)
	}
	routes := list(from["routes"])
	info.hosts = hostsOf(routes)
	errors := asObject(from["errors"])
	inErrors := t.anyReaches(list(errors["routes"]))
	info.zones = inErrors || t.anyReaches(routes)
	if inErrors {
		t.plan.note("zones in error routes count denied requests, and errors that handlers before them make: a log does not tell an error of the back end from its answer")
	}
	// An error of a handler that no zone follows still leads to zones of error routes.
	routes = t.routes(routes, !inErrors)
	begin, answer := object{"handler": handlerName, "do": doBegin}, object{"handler": handlerName, "do": doAnswer}
	s["routes"] = append(append([]any{object{"handle": []any{begin}}}, routes...), object{"handle": []any{answer}})
	if errors != nil {
		errors["routes"] = t.routes(list(errors["routes"]), false)
	}
	for _, route := range t.named {
		t.handlers(route, false)
	}
	t.plan.servers = append(t.plan.servers, info)
	return s
}

// routes replaces the handlers of routes. If nothing that counts comes after them, tail says so, and those after the last
// zone are left out.
func (t *transformer) routes(routes []any, tail bool) []any {
	last := -1
	for i, route := range routes {
		if t.routeReaches(asObject(route)) {
			last = i
		}
	}
	if tail {
		routes = routes[:last+1]
	}
	for i, r := range routes {
		route := asObject(r)
		group, _ := route["group"].(string)
		followed := slices.ContainsFunc(routes[i+1:], func(other any) bool {
			return t.routeReaches(asObject(other)) && (group == "" || asObject(other)["group"] != group)
		})
		t.scanMatchers(route["match"])
		t.handlers(route, tail && (route["terminal"] == true || !followed))
	}
	return routes
}

// handlers replaces those of a route.
func (t *transformer) handlers(route object, tail bool) {
	from := list(route["handle"])
	last := -1
	for i, h := range from {
		if t.handlerReaches(asObject(h)) {
			last = i
		}
	}
	to := []any{}
	if tail {
		from = from[:last+1]
	}
	for i, h := range from {
		to = append(to, t.handler(asObject(h), tail && i == last)...)
	}
	if tail { // here, as a route that is terminal leads to no other one
		to = append(to, object{"handler": handlerName, "do": doAnswer})
	}
	route["handle"] = to
}

// Handlers of Caddy, by what becomes of them.
var (
	runs = map[string]bool{"rewrite": true, "error": true, "invoke": true}
	// They change the answer, the log or the body only.
	leftOut = map[string]bool{
		"encode": true, "templates": true, "request_body": true, "tracing": true, "timeouts": true, "log_append": true, "intercept": true,
		"push": true, "copy_response_headers": true,
	}
	answering = map[string]bool{"static_response": true, "metrics": true, "acme_server": true, "copy_response": true}
)

// handler returns what runs in the place of a handler.
func (t *transformer) handler(h object, tail bool) []any {
	name, _ := h["handler"].(string)
	answer := []any{object{"handler": handlerName, "do": doAnswer}}
	switch {
	case name == "sliding_window":
		t.limiter(h)
		return []any{h}
	case name == "subroute":
		h["routes"] = t.routes(list(h["routes"]), tail)
		if errors := asObject(h["errors"]); errors != nil {
			errors["routes"] = t.routes(list(errors["routes"]), false)
		}
		return []any{h}
	case name == "headers":
		if h["request"] == nil {
			return nil
		}
		return []any{object{"handler": name, "request": h["request"]}}
	case name == "authentication":
		return []any{object{"handler": handlerName, "do": doAuthenticate}}
	case name == "map", name == "vars":
		t.defines(name, h)
		return []any{h}
	case name == "log_append":
		t.plan.logged(h)
		return nil
	case runs[name]:
		return []any{h}
	case leftOut[name]:
		return nil
	case answering[name]:
		return answer
	case name == "file_server":
		if h["pass_thru"] == true {
			return nil
		}
		return answer
	case name == "reverse_proxy":
		if len(list(h["handle_response"])) == 0 {
			return answer
		}
		for _, r := range list(h["handle_response"]) {
			t.fieldsSet(list(asObject(r)["routes"]))
		}
		t.plan.note("reverse_proxy with handle_response, as of forward_auth, is not asked: requests pass it")
		return nil
	}
	t.plan.note("handler " + name + " is not run: requests pass it")
	t.plan.notRun = append(t.plan.notRun, name)
	return nil
}

// fieldsSet notes the fields of requests that routes after an answer set, which a log does not know.
func (t *transformer) fieldsSet(routes []any) {
	for _, r := range routes {
		for _, h := range list(asObject(r)["handle"]) {
			handler := asObject(h)
			t.fieldsSet(list(handler["routes"]))
			request := asObject(handler["request"])
			for _, change := range []string{"set", "add"} {
				for field := range asObject(request[change]) {
					t.plan.setElsewhere[strings.ToLower(field)] = true
				}
			}
		}
	}
}

// defines notes the placeholders that a handler gives values.
func (t *transformer) defines(name string, h object) {
	if name == "map" {
		for _, d := range list(h["destinations"]) {
			t.plan.defined[strings.Trim(fmt.Sprint(d), "{}")] = true
		}
		return
	}
	for v := range h {
		t.plan.defined["http.vars."+v] = true
	}
}

// limiter readies a handler with zones.
func (t *transformer) limiter(h object) {
	if h["store"] != nil {
		t.store(h)
	}
	delete(h, "on_error")
	delete(h, "share")
	for _, z := range list(h["zones"]) {
		zone := asObject(z)
		name := fmt.Sprint(zone["name"])
		for _, option := range []string{"load", "lease"} {
			if zone[option] != nil {
				delete(zone, option)
				t.plan.note("zone " + name + ": " + option + " is off in a replay")
			}
		}
		delete(zone, "alert")
		delete(zone, "top_talkers")
		if settle := asObject(zone["settle"]); settle != nil {
			if settle["header"] == nil || settle["reserve_json"] != nil {
				delete(zone, "settle")
				t.plan.note("zone " + name + ": settle is off in a replay, for a log has no bodies: requests cost what cost says")
			} else {
				t.plan.holds, t.plan.fields = true, true
			}
		}
		if match := asObject(zone["count_if"]); match != nil {
			t.plan.holds = true
			t.plan.fields = t.plan.fields || match["headers"] != nil
		}
		if concurrent := asObject(zone["concurrent"]); concurrent != nil {
			if t.plan.holds = true; concurrent["hold"] == "status" {
				t.plan.note("zone " + name + ": requests hold their slots until their answers end, as a log does not tell when an answer began")
			}
		}
		t.scanMatchers(zone["match"])
		if ban := asObject(zone["ban"]); ban != nil {
			delete(ban, "spread") // two replays of a log decide the same
			t.scanMatchers(ban["except"])
		}
		t.plan.addZone(name, zone)
	}
}

// anyReaches reports whether one of several routes reaches a zone.
func (t *transformer) anyReaches(routes []any) bool {
	return slices.ContainsFunc(routes, func(r any) bool { return t.routeReaches(asObject(r)) })
}

func (t *transformer) routeReaches(route object) bool {
	return slices.ContainsFunc(list(route["handle"]), func(h any) bool { return t.handlerReaches(asObject(h)) })
}

func (t *transformer) handlerReaches(h object) bool {
	switch h["handler"] {
	case "sliding_window":
		return true
	case "subroute":
		return t.anyReaches(list(h["routes"])) || t.anyReaches(list(asObject(h["errors"])["routes"]))
	case "invoke":
		name, _ := h["name"].(string)
		if reaches, known := t.reaches[name]; known {
			return reaches
		}
		t.reaches[name] = false // of a route that invokes itself
		t.reaches[name] = t.routeReaches(t.named[name])
		return t.reaches[name]
	}
	return false
}

// scanMatchers notes which fields of the request's header matchers compare.
func (t *transformer) scanMatchers(sets any) {
	for _, s := range list(sets) {
		for name, m := range asObject(s) {
			switch name {
			case "header", "header_regexp":
				for field, values := range asObject(m) {
					if !onlyPresence(values) {
						t.plan.compared[strings.ToLower(field)] = true
					}
				}
			case "expression":
				t.expression(m)
			case "not":
				t.scanMatchers(m)
			case "file":
				t.plan.note("matcher file looks at the files of this machine")
			}
		}
	}
}

// expression notes the fields that an expression may compare: those whose names are in it.
func (t *transformer) expression(m any) {
	text := strings.ToLower(fmt.Sprint(m))
	if !strings.Contains(text, "header") {
		return
	}
	for _, field := range []string{"authorization", "cookie", "proxy-authorization"} {
		if strings.Contains(text, field) {
			t.plan.compared[field] = true
		}
	}
}

// onlyPresence reports whether a header matcher asks only whether a field is there.
func onlyPresence(values any) bool {
	all := list(values)
	return values == nil || len(all) > 0 && !slices.ContainsFunc(all, func(v any) bool { return v != "*" })
}

// hostsOf returns the hosts that routes match; nil if a route matches any host.
func hostsOf(routes []any) (hosts []string) {
	for _, r := range routes {
		sets := list(asObject(r)["match"])
		if len(sets) == 0 {
			return nil
		}
		for _, set := range sets {
			of := list(asObject(set)["host"])
			if len(of) == 0 {
				return nil
			}
			for _, h := range of {
				if host := strings.ToLower(fmt.Sprint(h)); !slices.Contains(hosts, host) {
					hosts = append(hosts, host)
				}
			}
		}
	}
	return hosts
}

func asObject(v any) object {
	o, _ := v.(object)
	return o
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}
