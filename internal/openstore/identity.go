package openstore

import (
	"slices"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// identities are the identities of stores that are open. Stores of one name that have a secret in common have one, and
// keep it while the secret changes: the store with both secrets joins that of the former one, and the store with only the
// new secret joins it in turn.
var identities struct {
	mu     sync.Mutex // guards what follows
	groups []*group
	last   int // StoreID.Group
}

// group is an identity of stores with a secret.
type group struct {
	id    engine.StoreID
	users map[string]int // stores that are open, by the fingerprint of a secret
}

func fingerprintsOf(store window.Store) []string {
	if f, ok := store.(engine.Fingerprinter); ok {
		return f.Fingerprints()
	}
	return nil
}

// identify returns the identity of a store that opens. Undo it with forget.
func identify(store window.Store) engine.StoreID {
	id, secrets := engine.StoreID{Name: store.String()}, fingerprintsOf(store)
	if len(secrets) == 0 {
		return id
	}
	identities.mu.Lock()
	defer identities.mu.Unlock()
	g := sharing(id.Name, secrets)
	if g == nil {
		identities.last++
		id.Group = identities.last
		g = &group{id, make(map[string]int)}
		identities.groups = append(identities.groups, g)
	}
	for _, secret := range secrets {
		g.users[secret]++
	}
	return g.id
}

// sharing returns the group that has a secret, of two the one that has the first; nil without one. identities.mu must be held.
func sharing(name string, secrets []string) *group {
	for _, secret := range secrets {
		for _, g := range identities.groups {
			if g.id.Name == name && g.users[secret] > 0 {
				return g
			}
		}
	}
	return nil
}

// forget undoes identify for a store that has closed.
func forget(id engine.StoreID, store window.Store) {
	secrets := fingerprintsOf(store)
	identities.mu.Lock()
	defer identities.mu.Unlock()
	identities.groups = slices.DeleteFunc(identities.groups, func(g *group) bool {
		if g.id != id {
			return false
		}
		for _, secret := range secrets {
			if g.users[secret]--; g.users[secret] == 0 {
				delete(g.users, secret)
			}
		}
		return len(g.users) == 0
	})
}
