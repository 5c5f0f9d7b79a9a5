package handlertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func init() {
	caddy.RegisterModule(fakeModule{})
	caddy.RegisterModule(plainModule{})
}

// fakeModule is a store that a test has registered under its name.
type fakeModule struct {
	Name string `json:"name"`
}

// CaddyModule returns the Caddy module information.
func (fakeModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.sliding_window.stores.fake", New: func() caddy.Module { return new(fakeModule) }}
}

// Store returns the store of the test.
func (m *fakeModule) Store() window.Store {
	store, _ := fakes.Load(m.Name)
	return store.(window.Store)
}

// ShadowStore returns the store that a test has given the other one.
func (m *fakeModule) ShadowStore() window.Store {
	if s, ok := m.Store().(*setClock); ok {
		return s.open()
	}
	return m.Store().(*Fake).Shadow
}

// plainModule is fakeModule without a store for shadows.
type plainModule struct {
	Name string `json:"name"`
}

// CaddyModule returns the Caddy module information.
func (plainModule) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.sliding_window.stores.plain", New: func() caddy.Module { return new(plainModule) }}
}

// Store returns the store of the test.
func (m *plainModule) Store() window.Store { return (&fakeModule{m.Name}).Store() }

var fakes sync.Map

// Decide is how a fake decides.
type Decide func(context.Context, []window.Charge) ([]window.Decision, error)

// Fake is a store that decides as it is told, and can be away.
type Fake struct {
	window.Store // none: what a handler does not use panics
	Name         string
	Shadow       *Fake // which ShadowStore returns

	turn sync.Mutex // held while it decides; before mu

	mu         sync.Mutex // guards what follows
	decide     Decide
	taken      [][]window.Charge
	settled    int64
	registered int
	parted     int
}

// NewFake registers a store for the test, and returns what configures it.
func NewFake(t testing.TB, decide Decide) (*Fake, string) {
	t.Helper()
	f := &Fake{Name: "fake " + t.Name(), decide: decide}
	if decide == nil {
		decide = Decides(window.Decision{Allowed: true, Limit: 1})
	}
	f.Shadow = &Fake{Name: f.Name, decide: decide}
	fakes.Store(t.Name(), f)
	t.Cleanup(func() { fakes.Delete(t.Name()) })
	return f, fmt.Sprintf(`{"module":"fake","name":%q}`, t.Name())
}

// Give registers a store of any type for the test, in place of one of NewFake, and returns what configures it.
func Give(t testing.TB, store window.Store) string {
	t.Helper()
	fakes.Store(t.Name(), store)
	t.Cleanup(func() { fakes.Delete(t.Name()) })
	return fmt.Sprintf(`{"module":"plain","name":%q}`, t.Name())
}

// Take implements window.Store.
func (f *Fake) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	f.taken = append(f.taken, charges)
	decide := f.decide
	f.mu.Unlock()
	return decide(ctx, charges)
}

// Hang blocks calls until goOn is called.
func (f *Fake) Hang() (goOn func()) {
	f.turn.Lock()
	return f.turn.Unlock
}

// TakeBatch implements window.Store.
func (f *Fake) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	return windowtest.TakeEach(ctx, f.Take, requests)
}

// CheckAlgorithm accepts all, as a store does whose server may have CL.THROTTLE.
func (f *Fake) CheckAlgorithm(window.Algorithm) error { return nil }

// Close implements window.Store.
func (f *Fake) Close() error { return nil }

// GiveBack fails as Take does.
func (f *Fake) GiveBack(ctx context.Context, c window.Charge, _, units int64) error {
	return f.settle(ctx, c, -units)
}

// ChargeMore fails as Take does.
func (f *Fake) ChargeMore(ctx context.Context, c window.Charge, units int64) error {
	return f.settle(ctx, c, units)
}

func (f *Fake) settle(ctx context.Context, c window.Charge, delta int64) error {
	err := f.fails(ctx, []window.Charge{c})
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.settled += delta
	}
	return err
}

// Ping fails as Take does.
func (f *Fake) Ping(ctx context.Context) error {
	return f.fails(ctx, nil)
}

// fails decides without noting what was asked.
func (f *Fake) fails(ctx context.Context, charges []window.Charge) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	decide := f.decide
	f.mu.Unlock()
	_, err := decide(ctx, charges)
	return err
}

// Register counts three.
func (f *Fake) Register(context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registered++
	return 3, nil
}

// Leave ends what Register began.
func (f *Fake) Leave(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parted++
	return nil
}

// String returns the name.
func (f *Fake) String() string { return f.Name }

// Become changes how the store decides.
func (f *Fake) Become(decide Decide) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide = decide
}

// Taken returns the charges of each call of Take.
func (f *Fake) Taken() [][]window.Charge {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken
}

// Settled returns the units that ChargeMore has added and GiveBack has taken.
func (f *Fake) Settled() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settled
}

// Registered returns how often Register was called, and Leave.
func (f *Fake) Registered() (registered, parted int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.registered, f.parted
}

// ErrAway is why a store is away.
var ErrAway = errors.New("connection refused")

// Away decides as a store that cannot be reached.
func Away(context.Context, []window.Charge) ([]window.Decision, error) {
	return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, ErrAway)
}

// Decides always says the same.
func Decides(ds ...window.Decision) Decide {
	return func(context.Context, []window.Charge) ([]window.Decision, error) { return ds, nil }
}

// setClock is a memory store on a clock that the test sets. It decides in the goroutine of a request, also in shadow.
type setClock struct {
	*memory.Store
	now int64
}

// newSetClock registers such a store for the test, and returns what configures it.
func newSetClock(t testing.TB) (*setClock, string) {
	t.Helper()
	s := &setClock{now: 1_700_000_000_000}
	s.Store = s.open()
	t.Cleanup(func() { _ = s.Close() })
	fakes.Store(t.Name(), s)
	t.Cleanup(func() { fakes.Delete(t.Name()) })
	return s, fmt.Sprintf(`{"module":"fake","name":%q}`, t.Name())
}

// Step implements engine.Stepper.
func (s *setClock) Step(now int64) { s.now = now }

// Time implements engine.Stepper.
func (s *setClock) Time() int64 { return s.now }

// String is the name of no other store.
func (s *setClock) String() string { return fmt.Sprintf("clock %p", s) }

func (s *setClock) open() *memory.Store {
	return memory.New(memory.Options{SweepInterval: -1, Now: s.Time})
}
