// Package zonepool keeps what the handlers of a zone share, and what outlives reloads.
package zonepool

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
)

// parts are all that handlers hold, by key.
var parts = caddy.NewUsagePool()

type key struct {
	zone engine.ZoneID
	part any
}

// Hold is what one handler holds of one zone, until Release. It is not safe for concurrent use.
type Hold struct {
	Zone engine.ZoneID
	keys []key
}

// Of returns a Hold of a zone. Release it.
func Of(zone engine.ZoneID) *Hold { return &Hold{Zone: zone} }

// Get returns a part of the zone of h, the same to all handlers that hold it. The first one makes it. The last one that
// releases its Hold destructs it.
func Get[T caddy.Destructor](h *Hold, part any, make func() T) T {
	k := key{h.Zone, part}
	value, _, _ := parts.LoadOrNew(k, func() (caddy.Destructor, error) { return make(), nil })
	h.keys = append(h.keys, k)
	return value.(T)
}

// Release gives back all parts that h got. A nil Hold has none.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	for _, k := range h.keys {
		_, _ = parts.Delete(k) // Destruct of a part returns no error
	}
	h.keys = nil
}

// All returns the parts of a type that are held, by zone.
func All[T caddy.Destructor]() map[engine.ZoneID][]T {
	all := make(map[engine.ZoneID][]T)
	parts.Range(func(k, value any) bool {
		if part, ok := value.(T); ok {
			zone := k.(key).zone
			all[zone] = append(all[zone], part)
		}
		return true
	})
	return all
}
