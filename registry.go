package slidingwindow

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/alert"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
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
	guard   *guard
	onError string
	share   bool
}

// id names the counters of the zone.
func (z *runningZone) id() zoneID { return zoneID{z.guard.store.String(), z.zone.Name} }

// newRunningZone returns a zone of h for the registry.
func (h *Handler) newRunningZone(z *Zone) *runningZone {
	own := *z
	own.MatcherSetsRaw, own.matchers = nil, nil // modules keep the context that they came with
	return &runningZone{zone: own, guard: h.guard, onError: h.OnError, share: h.Share}
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

// guards returns the guards of running zones, by the names of their stores, each once.
func (r *registry) guards() []*guard {
	var all []*guard
	for _, zones := range r.list() {
		for _, z := range zones {
			if !slices.ContainsFunc(all, func(g *guard) bool { return g.store.String() == z.guard.store.String() }) {
				all = append(all, z.guard)
			}
		}
	}
	slices.SortFunc(all, func(a, b *guard) int { return cmp.Compare(a.store.String(), b.store.String()) })
	return all
}

// watching looks at the zones that run, each second.
var watching = alert.NewWatcher(watchZones)

// watchZones looks at all zones that run. Of two configurations, the newer one says what to watch for.
func watchZones(now time.Time) {
	for _, zones := range running.list() {
		z := &zones[0].zone
		z.control.current() // which notes that its time is over
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
