package slidingwindow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func init() {
	caddy.RegisterModule(fakeModule{})
}

// fakeModule is a store that a test has registered under its name.
type fakeModule struct {
	Name string `json:"name"`
}

func (fakeModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.sliding_window.stores.fake", New: func() caddy.Module { return new(fakeModule) }}
}

func (m *fakeModule) Store() window.Store {
	store, _ := fakes.Load(m.Name)
	return store.(*fakeStore)
}

// ShadowStore returns the store that a test has given the other one.
func (m *fakeModule) ShadowStore() window.Store { return m.Store().(*fakeStore).shadow }

var fakes sync.Map

// fakeStore decides as it is told, and can be away.
type fakeStore struct {
	window.Store // none: what a handler does not use panics
	name         string

	mu     sync.Mutex
	decide func(context.Context, []window.Charge) ([]window.Decision, error)
	taken  [][]window.Charge

	settled  int64 // units
	attended int
	parted   int
	shadow   *fakeStore // which ShadowStore returns
}

// newFake registers a store for the test, and returns what configures it.
func newFake(t *testing.T, decide func(context.Context, []window.Charge) ([]window.Decision, error)) (*fakeStore, string) {
	t.Helper()
	f := &fakeStore{name: "fake " + t.Name(), decide: decide}
	if decide == nil {
		decide = decides(window.Decision{Allowed: true, Limit: 1})
	}
	f.shadow = &fakeStore{name: f.name, decide: decide}
	fakes.Store(t.Name(), f)
	t.Cleanup(func() { fakes.Delete(t.Name()) })
	return f, fmt.Sprintf(`{"module":"fake","name":%q}`, t.Name())
}

func (f *fakeStore) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = append(f.taken, charges)
	return f.decide(ctx, charges)
}

func (f *fakeStore) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	results := make([]window.Result, len(requests))
	for i, charges := range requests {
		results[i].Decisions, results[i].Err = f.Take(ctx, charges)
	}
	return results
}

func (f *fakeStore) Close() error { return nil }

// Settle fails as Take does.
func (f *fakeStore) Settle(ctx context.Context, c window.Charge, _, delta int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.decide(ctx, []window.Charge{c})
	if err == nil {
		f.settled += delta
	}
	return err
}

func (f *fakeStore) Ping(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.decide(ctx, nil)
	return err
}

// Attend counts three.
func (f *fakeStore) Attend(context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attended++
	return 3, nil
}

func (f *fakeStore) Leave(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parted++
	return nil
}

func (f *fakeStore) String() string { return f.name }

func (f *fakeStore) become(decide func(context.Context, []window.Charge) ([]window.Decision, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide = decide
}

var errAway = errors.New("connection refused")

func away(context.Context, []window.Charge) ([]window.Decision, error) {
	return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, errAway)
}

// decides always says the same.
func decides(ds ...window.Decision) func(context.Context, []window.Charge) ([]window.Decision, error) {
	return func(context.Context, []window.Charge) ([]window.Decision, error) { return ds, nil }
}

// newHandler provisions a handler until the end of the test.
func newHandler(t testing.TB, config string) (*Handler, caddy.Context) {
	t.Helper()
	base, err := caddy.ProvisionContext(&caddy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(base)
	t.Cleanup(cancel)
	h, err := ctx.LoadModuleByID("http.handlers.sliding_window", json.RawMessage(config))
	if err != nil {
		t.Fatal(err)
	}
	return h.(*Handler), ctx
}

// zoneHandler is a configuration of one zone, which no other test has.
func zoneHandler(t *testing.T, zone, more string) string {
	t.Helper()
	return fmt.Sprintf(`{"zones":[{"name":%q,%s}]%s}`, zoneName(t), zone, more)
}

func zoneName(t *testing.T) string {
	t.Helper()
	name := []byte(t.Name())
	for i, b := range name {
		if b == '/' || b == '#' {
			name[i] = '.'
		}
	}
	return string(name)
}

// get is a request from 192.0.2.1 with these header fields, name after name.
func get(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// serve hands a request to the handlers in turn, and answers 204 after the last.
func serve(t *testing.T, r *http.Request, handlers ...*Handler) *httptest.ResponseRecorder {
	t.Helper()
	var all []caddyhttp.MiddlewareHandler
	for _, h := range handlers {
		all = append(all, h)
	}
	w, err := tryServe(r, all...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func tryServe(r *http.Request, handlers ...caddyhttp.MiddlewareHandler) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	prepared := caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	*r = *prepared
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
	for i := len(handlers) - 1; i >= 0; i-- {
		h, after := handlers[i], next
		next = func(w http.ResponseWriter, r *http.Request) error { return h.ServeHTTP(w, r, after) }
	}
	return w, next(w, r)
}

// expand replaces the placeholders of a request that was served.
func expand(r *http.Request, text string) string {
	return r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).ReplaceAll(text, "")
}
