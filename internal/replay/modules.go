package replay

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// Names of the modules that stand in a configuration for what a replay does not run.
const (
	handlerName = "sliding_window_replay"
	storeName   = "replay"
)

// register adds the modules of replays, which a Caddy that serves does not have.
var register = sync.OnceFunc(func() {
	caddy.RegisterModule(standIn{})
	caddy.RegisterModule(storeModule{})
	caddy.RegisterModule(storage{})
})

// standIn is the handler in the place of one that a replay does not run.
type standIn struct {
	Do string `json:"do"`
}

// What a standIn does.
const (
	doBegin        = "begin"        // notes the request's variables, and what is asked for
	doAnswer       = "answer"       // answers as the log says
	doAuthenticate = "authenticate" // has authenticated the user that the log names
)

// CaddyModule returns the Caddy module information.
func (standIn) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers." + handlerName, New: func() caddy.Module { return new(standIn) }}
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	st, ok := r.Context().Value(stepKey{}).(*step)
	if !ok {
		return errors.New("this handler runs in a replay only")
	}
	switch s.Do {
	case doBegin:
		if err := st.begin(r); err != nil {
			return err
		}
		return next.ServeHTTP(w, r)
	case doAuthenticate:
		if st.line.UserID == "" && st.line.Status == http.StatusUnauthorized {
			return caddyhttp.Error(http.StatusUnauthorized, errors.New("not authenticated"))
		}
		repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
		repl.Set("http.auth.user.id", st.line.UserID)
		return next.ServeHTTP(w, r)
	}
	return st.answer(w)
}

// storeModule is the module of a store of a run.
type storeModule struct {
	Name string `json:"name"`
	// Keys that the store keeps at most.
	MaxKeys int64 `json:"max_keys"`

	store *store
}

// CaddyModule returns the Caddy module information.
func (storeModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.sliding_window.stores." + storeName, New: func() caddy.Module { return new(storeModule) }}
}

// Provision implements caddy.Provisioner.
func (m *storeModule) Provision(caddy.Context) error {
	openStores.Lock()
	defer openStores.Unlock()
	m.store = openStores.of[m.Name]
	if m.store == nil {
		m.store = &store{name: m.Name, maxKeys: m.MaxKeys}
		m.store.Store = m.store.open()
		openStores.of[m.Name] = m.store
	}
	return nil
}

// Store returns the store, see slidingwindow.StoreModule.
func (m *storeModule) Store() window.Store { return m.store }

// ShadowStore returns a store on the same clock, see slidingwindow.ShadowModule.
func (m *storeModule) ShadowStore() window.Store { return m.store.open() }

// openStores are the stores of the runs of this process, by name.
var openStores = struct {
	sync.Mutex
	of map[string]*store
}{of: make(map[string]*store)}

// store is a memory store on the clock of a log.
type store struct {
	*memory.Store
	name    string
	maxKeys int64
	now     atomic.Int64 // Unix milliseconds
}

func (s *store) open() *memory.Store {
	return memory.New(memory.Options{MaxKeys: s.maxKeys, Now: s.now.Load})
}

// String implements window.Store.
func (s *store) String() string { return s.name }

// Step implements engine.Stepper.
func (s *store) Step(now int64) { s.now.Store(now) }

// Time implements engine.Stepper.
func (s *store) Time() int64 { return s.now.Load() }
