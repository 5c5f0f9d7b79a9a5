package slidingwindow

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
	"github.com/slidingwindow/caddy-sliding-window/internal/uptime"
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
	// Guards of the handlers that share, one for each handler.
	sharing []*guard
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
	// When the log may say again that an option came out empty, as in valueOptions.
	noValueLog [len(valueOptions)]uptime.Rare
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

// share announces this instance on g's store from Start to Stop, so that instances can count
// each other.
func (a *App) share(g *guard) {
	if g.fallback != nil {
		a.sharing = append(a.sharing, g)
	}
}

// Start implements caddy.App.
func (a *App) Start() error {
	a.sender.Start()
	for _, g := range a.sharing {
		g.fallback.Share()
	}
	for _, z := range a.running {
		if z.guard.lookout != nil {
			z.guard.lookout.Begin()
		}
		if z.zone.load != nil {
			z.zone.load.sampler.Start(z.zone.load.Zone)
		}
	}
	for g, zones := range a.byGuard() {
		g.overrides.begin(zones, a.storage)
	}
	running.add(a.running)
	watching.Begin()
	return nil
}

// byGuard returns the zones of each guard.
func (a *App) byGuard() map[*guard][]*runningZone {
	all := make(map[*guard][]*runningZone)
	for _, z := range a.running {
		all[z.guard] = append(all[z.guard], z)
	}
	return all
}

// Stop implements caddy.App.
func (a *App) Stop() error {
	running.remove(a.running)
	for g, zones := range a.byGuard() {
		g.overrides.end(zones)
	}
	for _, z := range a.running {
		if z.zone.load != nil {
			z.zone.load.sampler.Stop(z.zone.load.Zone)
		}
	}
	watching.End()
	for _, g := range a.sharing {
		g.fallback.Unshare()
	}
	a.sender.Stop()
	return nil
}

// loadStore loads the store that host, an *App or a *Handler, configures as raw.
func loadStore(ctx caddy.Context, host any, raw json.RawMessage) (StoreModule, error) {
	if err := checkStoreModule(raw); err != nil {
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
