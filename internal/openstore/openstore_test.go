package openstore

import (
	"context"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/tests/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func TestMain(m *testing.M) { os.Exit(caddyrun.Main(m, func() {})) }

func request() []window.Charge {
	return []window.Charge{{Zone: "z", Key: "k", Cost: 1, Algorithm: window.Zset{}, Policies: []window.Policy{{Limit: 1, Window: time.Hour}}}}
}

// Configurations with one store have one Store, which ends with the last of them and of the receipts that are not
// settled.
func TestStoreOutlivesReload(t *testing.T) {
	f, _ := handlertest.NewFake(t, handlertest.Decides(window.Decision{Allowed: true, Limit: 1}))
	before, after := Acquire(f, nil, true), Acquire(f, nil, false)
	if before != after {
		t.Fatal("one store is two")
	}
	before.Release(true)
	c := &request()[0]
	after.hold(c)
	if n := after.Unsettled(); n != 1 {
		t.Errorf("%d receipts are not settled, want 1", n)
	}
	after.Release(false)
	if after.closed.Load() {
		t.Error("it is closed under a receipt")
	}
	after.release()
	if !after.closed.Load() {
		t.Error("it is open, and has no user")
	}
	another := Acquire(f, nil, false)
	defer another.Release(false)
	if another == after {
		t.Error("what was closed is used again")
	}
}

// A store that is away is so in its state, and its counters are decided on locally.
func TestState(t *testing.T) {
	own := memory.New(memory.Options{SweepInterval: -1})
	alone := Acquire(own, nil, true)
	defer func() { alone.Release(true); _ = own.Close() }()
	if _, err := alone.Take(t.Context(), request(), nil); err != nil {
		t.Fatal(err)
	}
	if s := alone.State(); alone.IsRemote() || s.State != control.StateOK || s.Keys == nil || *s.Keys != 1 {
		t.Errorf("memory: %+v", s)
	}

	f, _ := handlertest.NewFake(t, handlertest.Away)
	remote := Acquire(f, nil, true)
	defer remote.Release(true)
	for range 3 { // the third failure opens the breaker
		if _, err := remote.Take(t.Context(), request(), nil); err == nil {
			t.Fatal("no error")
		}
	}
	handlertest.Poll(t, "the store is away", func() bool { return remote.State().State == control.StateAway })
	if s := remote.State(); !remote.IsRemote() || s.Name != f.Name || s.Since == "" || s.Cause == "" {
		t.Errorf("remote: %+v", s)
	}
	for _, want := range []bool{true, false} {
		ds, err := remote.TakeLocal(t.Context(), request(), window.ErrUnavailable, false, nil)
		if err != nil || window.Allowed(ds) != want {
			t.Errorf("local: %+v, %v, want allowed %t", ds, err, want)
		}
	}
}

// fleet is a store that knows its two processes by name.
type fleet struct{ *handlertest.Fake }

func (f fleet) Instances(context.Context) ([]engine.Instance, error) {
	return []engine.Instance{{Name: "web-1-a", Silent: 4 * time.Second}, {Name: "web-2-b", Own: true}}, nil
}

// A store has members from Join to Leave, and not while it is away.
func TestMembers(t *testing.T) {
	f, _ := handlertest.NewFake(t, handlertest.Decides(window.Decision{Allowed: true, Limit: 1}))
	s := Acquire(fleet{f}, nil, true)
	defer s.Release(true)
	if all := s.Members(t.Context()); all != nil {
		t.Errorf("%v before Join", all)
	}
	s.Join()
	defer s.Leave()
	want := []control.Member{{Name: "web-1-a", Silent: 4}, {Name: "web-2-b", Own: true}}
	handlertest.Poll(t, "members", func() bool { return reflect.DeepEqual(s.Members(t.Context()), want) })
	f.Become(handlertest.Away)
	handlertest.Poll(t, "the store is away", func() bool {
		_, _ = s.Take(t.Context(), request(), nil)
		return s.State().State == control.StateAway
	})
	if all := s.Members(t.Context()); all != nil {
		t.Errorf("%v while it is away", all)
	}
}
