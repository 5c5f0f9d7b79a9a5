package running

import (
	"cmp"
	"slices"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
)

// Zones lists the zones of the configurations that run in this process: of one, or of two while
// Caddy reloads.
var Zones Registry

// Registry lists zones from Add to Remove. Operators read it, and requests look nothing up. It is safe
// for concurrent use.
type Registry struct {
	mu      sync.Mutex // guards what follows
	zones   []*ActiveZone
	loading int // configurations; see Expect
}

// Expect notes that a configuration loads, whose zones come with Add, until done is called.
func (r *Registry) Expect() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loading++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.loading--
	})
}

// IsLoading reports whether a configuration loads.
func (r *Registry) IsLoading() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loading > 0
}

// Add adds zones, which are newer than those that are there.
func (r *Registry) Add(zones []*ActiveZone) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.zones = append(r.zones, zones...)
}

// Remove undoes Add.
func (r *Registry) Remove(zones []*ActiveZone) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.zones = slices.DeleteFunc(r.zones, func(z *ActiveZone) bool { return slices.Contains(zones, z) })
}

// List returns the zones by name and store, and of each the newest first.
func (r *Registry) List() [][]*ActiveZone {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all [][]*ActiveZone
	places := make(map[engine.ZoneID]int)
	for _, z := range slices.Backward(r.zones) {
		at, ok := places[z.ID()]
		if !ok {
			at = len(all)
			places[z.ID()] = at
			all = append(all, nil)
		}
		all[at] = append(all[at], z)
	}
	slices.SortFunc(all, func(a, b []*ActiveZone) int {
		return cmp.Or(cmp.Compare(a[0].Name(), b[0].Name()), compareStores(a[0].Store, b[0].Store))
	})
	return all
}

// Find returns the zones of a name, by store.
func (r *Registry) Find(name string) [][]*ActiveZone {
	return slices.DeleteFunc(r.List(), func(z []*ActiveZone) bool { return z[0].Name() != name })
}

// Stores returns the stores of the zones, by name, each once.
func (r *Registry) Stores() []*openstore.SharedStore {
	var all []*openstore.SharedStore
	for _, zones := range r.List() {
		for _, z := range zones {
			if !slices.ContainsFunc(all, func(s *openstore.SharedStore) bool { return s.ID == z.Store.ID }) {
				all = append(all, z.Store)
			}
		}
	}
	slices.SortFunc(all, compareStores)
	return all
}

func compareStores(a, b *openstore.SharedStore) int {
	return cmp.Or(cmp.Compare(a.ID.Name, b.ID.Name), cmp.Compare(a.ID.Group, b.ID.Group))
}
