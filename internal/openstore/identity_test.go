package openstore

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// secretive is a store of which only the name and the secrets are known.
type secretive struct {
	window.Store
	name    string
	secrets []string
}

func (s secretive) String() string         { return s.name }
func (s secretive) Fingerprints() []string { return s.secrets }

func open(name string, secrets ...string) (engine.StoreID, func()) {
	s := secretive{name: name, secrets: secrets}
	id := identify(s)
	return id, func() { forget(id, s) }
}

// Stores of one name with other secrets are apart. While a secret changes, step by step, its store stays the same.
func TestIdentity(t *testing.T) {
	none, _ := open("a")
	if none != (engine.StoreID{Name: "a"}) {
		t.Errorf("without a secret: got %+v", none)
	}
	old, closeOld := open("a", "old")
	again, closeAgain := open("a", "old")
	other, closeOther := open("a", "other")
	elsewhere, closeElsewhere := open("b", "old")
	if old != again || old == none || other == old || other == none || elsewhere == old || elsewhere.Name != "b" || other.Name != "a" {
		t.Fatalf("none %+v, old %+v and %+v, another secret %+v, another store %+v", none, old, again, other, elsewhere)
	}
	closeAgain()
	both, closeBoth := open("a", "new", "old")
	if both != old {
		t.Errorf("with both secrets: %+v, want %+v", both, old)
	}
	closeOld()
	changed, closeChanged := open("a", "new")
	if changed != old {
		t.Errorf("with the new secret: %+v, want %+v", changed, old)
	}
	closeBoth()
	late, closeLate := open("a", "old")
	if late == changed {
		t.Error("the former secret, which no store has any more, is still the store's")
	}
	for _, end := range []func(){closeLate, closeChanged, closeOther, closeElsewhere} {
		end()
	}
	if len(identities.groups) != 0 {
		t.Errorf("%d identities of stores that have closed", len(identities.groups))
	}
	if id, end := open("a", "old"); id == old || id == late {
		t.Errorf("the identity of a store that has closed is used again: %+v", id)
	} else {
		end()
	}
}
