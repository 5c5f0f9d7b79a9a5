package slidingwindow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/alert"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
	"github.com/slidingwindow/caddy-sliding-window/internal/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/suggest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func init() {
	caddy.RegisterModule(App{})
}

// App holds what the sliding_window handlers of a configuration share.
type App struct {
	// The store of handlers that have none of their own. Default: memory.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=http.sliding_window.stores inline_key=module"`

	// What handlers that do not say otherwise do while the store is away: `local`
	// enforces the limits on this instance's own counts, `allow` lets requests
	// pass uncounted, `deny` answers 503. Default: `local`.
	OnError string `json:"on_error,omitempty"`

	// With `on_error` `local`: whether limits are divided, while the store is away, by
	// the number of instances that it was last seen to be shared by, rounded down to 1
	// at least. Default: false.
	Share bool `json:"share,omitempty"`

	store StoreModule
	// Definitions of the zones seen while the configuration loads, one module
	// after the other.
	zones map[zoneID]*zoneUse
	// Stores on which this instance is announced, one for each handler.
	joined []*openstore.Store
	// Zones of the handlers, for the registry.
	running []*runningZone
	// Caddy's storage, for overrides.
	storage overridestore.Storage
	// Hands events to the handlers of the configuration.
	sender *events.Sender
}

// zoneID is what counters are told apart by, beside their keys.
type zoneID struct{ store, zone string }

// zoneUse is what the handlers that use a zone have in common. It is complete once
// the configuration has loaded.
type zoneUse struct {
	definition string
	// Whether a handler charges for other zones as well, so that a script has to
	// decide in all of them: a counter is kept in one way.
	script bool
	// Whether the log has what is most likely a mistake in the zone.
	warned bool
	// All zones of the handlers with it, if they have others.
	beside []*Zone
	// Whether the store of a handler keeps no counters of requests that are not denied.
	noShadow bool
	// When the log may say again that an option came out empty.
	noValueLog placeholders.Due
	// Whether answers tell their cost, in a zone with settle.
	seeking seeking
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "sliding_window", New: func() caddy.Module { return new(App) }}
}

// Provision implements caddy.Provisioner.
func (a *App) Provision(ctx caddy.Context) error {
	a.zones = make(map[zoneID]*zoneUse)
	a.storage = ctx.Storage()
	if err := checkWord("on_error", a.OnError, "", onErrorLocal, onErrorAllow, onErrorDeny); err != nil {
		return fmt.Errorf("sliding_window: %w", err)
	}
	if a.OnError == "" {
		a.OnError = onErrorLocal
	}
	if err := checkShare(a.OnError, a.Share); err != nil {
		return fmt.Errorf("sliding_window: %w", err)
	}
	var err error
	if a.sender, err = events.NewSender(ctx); err != nil {
		return err
	}
	if a.StoreRaw == nil {
		return nil
	}
	a.store, err = loadStore(ctx, a, a.StoreRaw)
	return err
}

// storeFor returns the store of a handler that has none of its own. Without one in
// the configuration that is memory, which counts with its max_keys only where it is used.
func (a *App) storeFor(ctx caddy.Context) (StoreModule, error) {
	if a.store != nil {
		return a.store, nil
	}
	a.StoreRaw = json.RawMessage(`{"module":"memory"}`)
	store, err := loadStore(ctx, a, a.StoreRaw)
	a.store = store
	return store, err
}

// join announces this instance on a remote store from Start to Stop, so that instances can count
// each other.
func (a *App) join(s *openstore.Store) {
	if s.IsRemote() {
		a.joined = append(a.joined, s)
	}
}

// Start implements caddy.App.
func (a *App) Start() error {
	a.sender.Start()
	for _, s := range a.joined {
		s.Join()
	}
	for _, z := range a.running {
		z.store.Watch()
		z.zone.load.Start()
	}
	for s, zones := range a.byStore() {
		s.Overrides.Begin(inBook(zones), a.storage)
	}
	running.add(a.running)
	watching.Begin()
	return nil
}

// byStore returns the zones of each store.
func (a *App) byStore() map[*openstore.Store][]*runningZone {
	all := make(map[*openstore.Store][]*runningZone)
	for _, z := range a.running {
		all[z.store] = append(all[z.store], z)
	}
	return all
}

// Stop implements caddy.App.
func (a *App) Stop() error {
	running.remove(a.running)
	for s, zones := range a.byStore() {
		s.Overrides.End(inBook(zones))
	}
	for _, z := range a.running {
		z.zone.load.Stop()
	}
	watching.End()
	for _, s := range a.joined {
		s.Leave()
	}
	a.sender.Stop()
	return nil
}

// StoreModule is what a module in the namespace http.sliding_window.stores
// implements. Configurations that mean the same store must get the same
// window.Store, for counts and connections to outlive a reload, and may still use it
// for a while after the module's Cleanup: Caddy does not wait for requests.
type StoreModule interface {
	Store() window.Store
}

// ShadowModule is implemented by store modules that can keep what zones count without denying
// apart from what others count.
type ShadowModule interface {
	// ShadowStore returns a new store, which the caller closes. It shares neither memory nor
	// connections with Store, and has its name.
	ShadowStore() window.Store
}

// The words for what happens while the store is away.
const (
	onErrorLocal = "local"
	onErrorAllow = "allow"
	onErrorDeny  = "deny"
)

// checkShare refuses share without on_error local: without it nothing is decided locally.
func checkShare(onError string, share bool) error {
	if share && onError != onErrorLocal {
		return fmt.Errorf("share and on_error %s cannot be combined; write on_error local { share }, or take share out", onError)
	}
	return nil
}

// loadStore loads the store that host, an *App or a *Handler, configures as raw.
func loadStore(ctx caddy.Context, host any, raw json.RawMessage) (StoreModule, error) {
	if err := suggest.CheckStoreModule(raw); err != nil {
		return nil, fmt.Errorf("sliding_window: %w", err)
	}
	value, err := ctx.LoadModule(host, "StoreRaw")
	if err != nil {
		return nil, fmt.Errorf("loading store module: %w", err)
	}
	module, ok := value.(StoreModule)
	if !ok {
		return nil, fmt.Errorf("loading store module: %T is not a store", value)
	}
	return module, nil
}

// addZone notes a zone. Two zones of one name on one store share their counters,
// so they have to be the same.
func (a *App) addZone(store window.Store, zone, definition string) (*zoneUse, error) {
	id := zoneID{store.String(), zone}
	use, ok := a.zones[id]
	if !ok {
		use = &zoneUse{definition: definition}
		a.zones[id] = use
	}
	if use.definition != definition {
		return nil, fmt.Errorf("zone %s: defined twice, and not the same: %s and %s; give one of them another name", zone, use.definition, definition)
	}
	return use, nil
}

func joinWords(words []string) string { return strings.Join(words, ", ") }

// Interface guards.
var (
	_ caddy.App         = (*App)(nil)
	_ caddy.Provisioner = (*App)(nil)
)

// running lists the zones of the configurations that run in this process: of one, or of two while
// Caddy reloads.
var running registry

// registry lists zones from App.Start to App.Stop. Operators read it, and requests look nothing up.
// Its zones keep nothing of a caddy.Context.
type registry struct {
	mu    sync.Mutex // guards zones
	zones []*runningZone
}

// runningZone is a zone of a handler.
type runningZone struct {
	zone    Zone // without its matchers
	store   *openstore.Store
	onError string
	share   bool
	inBook  *overridebook.Zone
}

// id names the counters of the zone.
func (z *runningZone) id() zoneID { return zoneID{z.store.Name(), z.zone.Name} }

// newRunningZone returns a zone of h for the registry.
func (h *Handler) newRunningZone(z *Zone) *runningZone {
	own := *z
	own.MatcherSetsRaw, own.matchers = nil, nil // modules keep the context that they came with
	running := &runningZone{zone: own, store: h.store, onError: h.OnError, share: h.Share}
	running.inBook = running.forBook()
	return running
}

func (r *registry) add(zones []*runningZone) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.zones = append(r.zones, zones...)
}

func (r *registry) remove(zones []*runningZone) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.zones = slices.DeleteFunc(r.zones, func(z *runningZone) bool { return slices.Contains(zones, z) })
}

// list returns the zones by name and store. The newest of each comes first.
func (r *registry) list() [][]*runningZone {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all [][]*runningZone
	places := make(map[zoneID]int)
	for _, z := range slices.Backward(r.zones) {
		at, ok := places[z.id()]
		if !ok {
			at = len(all)
			places[z.id()] = at
			all = append(all, nil)
		}
		all[at] = append(all[at], z)
	}
	slices.SortFunc(all, func(a, b []*runningZone) int {
		return cmp.Or(cmp.Compare(a[0].zone.Name, b[0].zone.Name), cmp.Compare(a[0].id().store, b[0].id().store))
	})
	return all
}

// find returns those of a name, by store.
func (r *registry) find(name string) [][]*runningZone {
	return slices.DeleteFunc(r.list(), func(z []*runningZone) bool { return z[0].zone.Name != name })
}

// stores returns the stores of running zones, by name, each once.
func (r *registry) stores() []*openstore.Store {
	var all []*openstore.Store
	for _, zones := range r.list() {
		for _, z := range zones {
			if !slices.ContainsFunc(all, func(s *openstore.Store) bool { return s.Name() == z.store.Name() }) {
				all = append(all, z.store)
			}
		}
	}
	slices.SortFunc(all, func(a, b *openstore.Store) int { return cmp.Compare(a.Name(), b.Name()) })
	return all
}

// watching looks at the zones that run, each second.
var watching = alert.NewWatcher(watchZones)

// watchZones looks at all zones that run. Of two configurations, the newer one says what to watch for.
func watchZones(now time.Time) {
	for _, zones := range running.list() {
		z := &zones[0].zone
		z.control.Current() // which notes that its time is over
		z.seen.Watch(z.alerting, now)
	}
}

// listAlerts returns the alerts that have fired, by zone.
func listAlerts() []control.Alert {
	all := []control.Alert{}
	for _, zones := range running.list() {
		if a := zones[0].zone.seen.Alert(); a != nil {
			all = append(all, *a)
		}
	}
	return all
}

// zoneLoads returns the load of the zones that run.
func zoneLoads() (all []control.ZoneLoad) {
	for _, zones := range running.list() {
		if l := zones[0].zone.load; l != nil {
			all = append(all, l.State())
		}
	}
	return all
}
