package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/caddyapi"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// plan is a configuration that decides on the requests of a log.
type plan struct {
	servers []*server
	zones   []*zoneInfo // in the order of the configuration
	notes   []string    // what differs from a Caddy that serves
	notRun  []string    // handlers that are not known

	// There are no handlers of a site: each value has to be in the log.
	siteless bool

	holds  bool // answers take their time: what they cost is settled when they end, or they hold slots
	fields bool // answers need the fields of their header

	defined      map[string]bool   // placeholders that handlers define
	members      map[string]string // members of the log, by the placeholder whose value log_append puts there
	compared     map[string]bool   // fields of requests that matchers compare, in lower case
	setElsewhere map[string]bool   // fields of requests that only an answer of another server sets, in lower case

	httpPort, httpsPort int
	storeNames          []string
	stores              []*store
	cancel              func()
}

// zoneInfo is a zone as it is configured.
type zoneInfo struct {
	name    string
	limits  []string // such as "100 in 1m"
	enforce string   // as written; empty: on
	text    string   // its JSON
}

// server is one of the configuration.
type server struct {
	name          string
	listen        []string
	hosts         []string // that its routes match; nil: any
	loggers       []string // of access logs
	zones         bool     // whether a zone can be reached
	clientFromLog bool     // the proxies to believe are not in the configuration
	*caddyhttp.Server
}

// readLogs notes the names of loggers.
func (s *server) readLogs(logs any) {
	l := asObject(logs)
	if name, ok := l["default_logger_name"].(string); ok {
		s.loggers = append(s.loggers, name)
	}
	for _, names := range asObject(l["logger_names"]) {
		if name, ok := names.(string); ok {
			s.loggers = append(s.loggers, name)
		}
		for _, name := range list(names) {
			s.loggers = append(s.loggers, fmt.Sprint(name))
		}
	}
}

// Config is a configuration as Caddy's commands name it.
type Config struct {
	File, Adapter string
	// JSON is what File was adapted to; nil: not yet.
	JSON []byte
}

// setting is what a configuration does not say.
type setting struct {
	name      string // tells plans of a process apart
	maxKeys   int64  // of each store, at most
	overrides []overrides.Record
}

// loadPlan adapts and provisions a configuration. Close it.
func loadPlan(c Config, o setting) (*plan, error) {
	if c.JSON != nil {
		return newPlan(c.JSON, c.File, o)
	}
	text, file, _, err := caddyapi.LoadConfig(c.File, c.Adapter)
	if err != nil {
		return nil, err
	}
	if file == "" {
		return nil, errors.New("no configuration; name one with --config")
	}
	return newPlan(text, file, o)
}

// newPlan provisions a configuration in JSON, which is of a file.
func newPlan(text []byte, file string, o setting) (*plan, error) {
	register()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var config object
	if err := decoder.Decode(&config); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p := &plan{
		defined: make(map[string]bool), members: make(map[string]string), compared: make(map[string]bool), setElsewhere: make(map[string]bool),
	}
	t := &transformer{setting: o, plan: p, stores: make(map[string]string)}
	own, err := json.Marshal(t.run(config))
	if err != nil {
		return nil, err
	}
	if len(p.zones) == 0 {
		return nil, fmt.Errorf("%s has no zone of sliding_window", file)
	}
	for _, name := range t.stores {
		p.storeNames = append(p.storeNames, name)
	}
	return p, p.provision(file, own)
}

// provision loads what run made of the configuration. Nothing of it starts.
func (p *plan) provision(file string, own []byte) error {
	var config caddy.Config
	if err := json.Unmarshal(own, &config); err != nil {
		return err
	}
	apps := config.AppsRaw
	config.AppsRaw = nil
	base, err := caddy.ProvisionContext(&config)
	if err != nil {
		return err
	}
	config.AppsRaw = apps
	ctx, cancel := caddy.NewContext(base)
	p.cancel = cancel
	value, err := ctx.App("http")
	p.takeStores()
	if err != nil {
		p.close()
		return fmt.Errorf("%s: %w", file, err)
	}
	app := value.(*caddyhttp.App)
	p.httpPort, p.httpsPort = cmp.Or(app.HTTPPort, caddyhttp.DefaultHTTPPort), cmp.Or(app.HTTPSPort, caddyhttp.DefaultHTTPSPort)
	for _, s := range p.servers {
		s.Server = app.Servers[s.name]
	}
	return nil
}

// takeStores takes the stores of the plan from those that are open.
func (p *plan) takeStores() {
	openStores.Lock()
	defer openStores.Unlock()
	for _, name := range p.storeNames {
		if s := openStores.of[name]; s != nil {
			p.stores = append(p.stores, s)
		}
		delete(openStores.of, name)
	}
}

// close ends what the plan runs.
func (p *plan) close() {
	p.cancel()
	for _, s := range p.stores {
		_ = s.Close() // it returns no error
	}
}

// step sets the clocks, in Unix milliseconds.
func (p *plan) step(now int64) {
	for _, s := range p.stores {
		s.Step(now)
	}
}

// full reports whether a store keeps all the keys that it may keep.
func (p *plan) full() bool {
	return slices.ContainsFunc(p.stores, func(s *store) bool { return s.Keys() >= s.maxKeys })
}

// note adds a note, once.
func (p *plan) note(text string) {
	if !slices.Contains(p.notes, text) {
		p.notes = append(p.notes, text)
	}
}

// logged notes the placeholder whose value log_append puts into the log.
func (p *plan) logged(h object) {
	key, _ := h["key"].(string)
	value, _ := h["value"].(string)
	if name, ok := strings.CutPrefix(value, "{"); ok && strings.HasSuffix(name, "}") && key != "" {
		p.members[strings.TrimSuffix(name, "}")] = key
	}
}

// addZone notes a zone, once.
func (p *plan) addZone(name string, zone object) {
	if slices.ContainsFunc(p.zones, func(z *zoneInfo) bool { return z.name == name }) {
		return
	}
	text, _ := json.Marshal(zone) // it was read as JSON
	z := &zoneInfo{name: name, text: string(text)}
	z.enforce, _ = zone["enforce"].(string)
	ofKey := 0
	for _, l := range list(zone["limits"]) {
		limit := asObject(l)
		text := fmt.Sprintf("%v in %v", limit["max"], limit["window"])
		if tier, ok := limit["tier"]; ok {
			text += fmt.Sprintf(" tier %v", tier)
		} else {
			ofKey++
		}
		z.limits = append(z.limits, text)
	}
	if concurrent := asObject(zone["concurrent"]); concurrent != nil { // is decided on before tiers
		z.limits = slices.Insert(z.limits, ofKey, fmt.Sprintf("%v at the same time", concurrent["max"]))
	}
	p.zones = append(p.zones, z)
}

// uses returns the name of a zone that names a placeholder, or of the first zone.
func (p *plan) uses(placeholder string) string {
	for _, z := range p.zones {
		if strings.Contains(z.text, "{"+placeholder+"}") {
			return "zone " + z.name
		}
	}
	return "the configuration"
}

// serverOf returns the server that got a request, by the name of its logger, the host and the port.
func (p *plan) serverOf(logger, host string, tls bool) (*server, error) {
	candidates := p.servers
	narrow := func(is func(*server) bool) {
		var fewer []*server
		for _, s := range candidates {
			if is(s) {
				fewer = append(fewer, s)
			}
		}
		if len(fewer) > 0 {
			candidates = fewer
		}
	}
	name, port := splitHost(host)
	if port == 0 {
		if port = p.httpPort; tls {
			port = p.httpsPort
		}
	}
	if logger != "" {
		narrow(func(s *server) bool { return slices.Contains(s.loggers, logger) })
	}
	narrow(func(s *server) bool { return listensOn(s.listen, port) })
	narrow(func(s *server) bool {
		return s.hosts == nil || slices.ContainsFunc(s.hosts, func(pattern string) bool { return matchesHost(pattern, name) })
	})
	if len(candidates) == 1 {
		return candidates[0], nil
	}
	var names []string
	for _, s := range candidates {
		names = append(names, s.name)
	}
	return nil, fmt.Errorf("several servers of the configuration may have got the request: %s; name one with --server", strings.Join(names, ", "))
}

// splitHost returns the name of a host in lower case, and its port, 0 without one.
func splitHost(host string) (name string, port int) {
	name = strings.ToLower(host)
	if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") {
		if n, err := strconv.Atoi(name[i+1:]); err == nil {
			return name[:i], n
		}
	}
	return name, 0
}

func listensOn(listen []string, port int) bool {
	return slices.ContainsFunc(listen, func(text string) bool {
		a, err := caddy.ParseNetworkAddress(text)
		return err == nil && !a.IsUnixNetwork() && a.StartPort <= uint(port) && uint(port) <= a.EndPort
	})
}

// matchesHost reports whether a pattern, in which an asterisk is one label, matches a name.
func matchesHost(pattern, name string) bool {
	if pattern == name || strings.ContainsAny(pattern, "{") {
		return true
	}
	p, n := strings.Split(pattern, "."), strings.Split(name, ".")
	return len(p) == len(n) && slices.EqualFunc(p, n, func(a, b string) bool { return a == "*" || a == b })
}

// bytesOfKey is about what a key takes: in the store, and in the figures of the report.
const bytesOfKey = 400

// keysWithin returns how many keys fit into a memory.
func keysWithin(bytes int64) int64 {
	if bytes <= 0 {
		return memory.DefaultMaxKeys
	}
	return max(bytes/bytesOfKey, 1000)
}

// loggerName returns the name of a logger of a server, of the name in a log: http.log.access.<name>.
func loggerName(logged string) string {
	name, ok := strings.CutPrefix(logged, "http.log.access.")
	if !ok {
		return ""
	}
	return name
}
