package slidingwindow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/jsonform"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
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
	OnError control.OnError `json:"on_error,omitempty"`

	// With `on_error` `local`: whether limits are divided, while the store is away, by
	// the number of instances that it was last seen to be shared by, rounded down to 1
	// at least. Default: false.
	Share bool `json:"share,omitempty"`

	store StoreModule
	// Definitions of the zones seen while the configuration loads, one module
	// after the other.
	zones map[engine.ZoneID]*zone.Shared
	// The first store of each name, and whether the log names another one.
	stores map[string]*namedStore
	// Stores on which this instance is announced, one for each handler.
	joined []*openstore.SharedStore
	// Zones of the handlers, for the registry, and what tells it that they are there or will not come.
	running []*running.ActiveZone
	loaded  func()
	// Caddy's storage, for overrides.
	storage overridebook.Storage
	// Hands events to the handlers of the configuration.
	sender *events.Sender
}

// namedStore is a store as operators see it.
type namedStore struct {
	id     engine.StoreID
	warned bool
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "sliding_window", New: func() caddy.Module { return new(App) }}
}

// UnmarshalJSON implements json.Unmarshaler. Its errors name the path of what is wrong, and what to write.
func (a *App) UnmarshalJSON(b []byte) error {
	type plain App
	return jsonform.Unmarshal(b, (*plain)(a))
}

// Provision implements caddy.Provisioner.
func (a *App) Provision(ctx caddy.Context) error {
	a.loaded = running.Zones.Expect()
	a.zones, a.stores = make(map[engine.ZoneID]*zone.Shared), make(map[string]*namedStore)
	a.storage = ctx.Storage()
	a.OnError = cmp.Or(a.OnError, control.OnErrorLocal)
	if err := cmp.Or(checkOnError(a.OnError), checkShare(a.OnError, a.Share)); err != nil {
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
func (a *App) join(s *openstore.SharedStore) {
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
		z.Store.Watch()
		z.Load.Start()
	}
	for s, zones := range running.InBooks(a.running) {
		s.Overrides.Begin(zones, a.storage)
	}
	for _, b := range running.BooksOfBans(a.running) {
		b.Begin()
	}
	running.Zones.Add(a.running)
	a.loaded()
	running.Watcher.Begin()
	return nil
}

// Cleanup implements caddy.CleanerUpper.
func (a *App) Cleanup() error {
	a.loaded() // of a configuration that failed to load
	return nil
}

// Stop implements caddy.App.
func (a *App) Stop() error {
	running.Zones.Remove(a.running)
	for s, zones := range running.InBooks(a.running) {
		s.Overrides.End(zones)
	}
	for _, b := range running.BooksOfBans(a.running) {
		b.End()
	}
	for _, z := range a.running {
		z.Load.Stop()
	}
	running.Watcher.End()
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

// checkOnError refuses a word that on_error does not have. It may be left out.
func checkOnError(word control.OnError) error {
	return checkWord("on_error", word, append([]control.OnError{""}, control.OnErrors...)...)
}

// checkShare refuses share without on_error local: without it nothing is decided locally.
func checkShare(onError control.OnError, share bool) error {
	if share && !onError.Local() {
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

// addStore notes a store, and warns once of two that operators cannot tell apart.
func (a *App) addStore(ctx caddy.Context, id engine.StoreID) {
	first, ok := a.stores[id.Name]
	if !ok {
		a.stores[id.Name] = &namedStore{id: id}
		return
	}
	if first.id != id && !first.warned {
		first.warned = true
		ctx.Logger().Warn("stores differ in hash_keys alone: they count apart, but have the same overrides and orders of enforce, and commands cannot tell them apart; give each a prefix of its own",
			zap.String("store", id.Name))
	}
}

// addZone notes a zone. Two zones of one name on one store share their counters,
// so they have to be the same.
func (a *App) addZone(store engine.StoreID, name, definition string) (*zone.Shared, error) {
	id := engine.ZoneID{Store: store, Zone: name}
	use, ok := a.zones[id]
	if !ok {
		use = &zone.Shared{Definition: definition}
		a.zones[id] = use
	}
	if use.Definition != definition {
		return nil, fmt.Errorf("zone %s: %w", name, errDiffer("", differences(use.Definition, definition)))
	}
	return use, nil
}

// errDiffer refuses a zone that is not the same as another one of its name. where says where that is, if that is known.
func errDiffer(where, differences string) error {
	return fmt.Errorf("defined twice, and not the same:%s %s; make them the same to share one counter, or rename one", where, differences)
}

// differences says in which options two definitions differ; it is empty if they do not.
func differences(one, two string) string {
	if one == two {
		return ""
	}
	var options [2]map[string]json.RawMessage
	var shared [2]bool
	for i, definition := range []string{one, two} {
		text, cut := strings.CutSuffix(definition, withShare)
		shared[i] = cut
		_ = json.Unmarshal([]byte(text), &options[i]) // it was made by json.Marshal
	}
	var all []string
	names := make(map[string]bool)
	for _, o := range options {
		for name := range o {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, b := options[0][name], options[1][name]
		if string(a) != string(b) {
			all = append(all, fmt.Sprintf("%s differ: %s and %s", name, cmp.Or(string(a), "none"), cmp.Or(string(b), "none")))
		}
	}
	if shared[0] != shared[1] {
		all = append(all, "on_error local { share } holds for one of them")
	}
	return strings.Join(all, ", ")
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
