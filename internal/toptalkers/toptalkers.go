// Package toptalkers notes which keys of zones are denied most and charged most, for operators and for a metric.
package toptalkers

import (
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/topkeys"
	"github.com/slidingwindow/caddy-sliding-window/internal/uptime"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Zone has the keys of a zone that are denied most and charged most. It is safe for concurrent use. A nil Zone
// notes nothing.
type Zone struct {
	*pair
	id    id
	label topkeys.Label // nil: keys are kept and shown as they are
}

// pair outlives reloads, and is the same for all handlers with the zone.
type pair struct {
	denied  *topkeys.Keys // in requests
	charged *topkeys.Keys // in units
}

// id tells pairs apart. A pair with hashes holds no keys, also after hash_keys was added.
type id struct {
	store  engine.StoreID
	zone   string
	hashed bool
}

var pairs = caddy.NewUsagePool()

// Destruct implements caddy.Destructor.
func (*pair) Destruct() error { return nil }

// Acquire returns the top talkers of a zone on a store that has an ID. Release them.
func Acquire(store window.Store, of engine.StoreID, zone string) *Zone {
	z := &Zone{id: id{store: of, zone: zone}}
	if hasher, ok := store.(engine.KeyHasher); ok && hasher.HashesKeys() {
		z.id.hashed, z.label = true, hasher.AppendKeyHash
	}
	value, _, _ := pairs.LoadOrNew(z.id, func() (caddy.Destructor, error) {
		return &pair{topkeys.New(uptime.Now()), topkeys.New(uptime.Now())}, nil
	})
	z.pair = value.(*pair)
	return z
}

// Release undoes Acquire.
func (z *Zone) Release() {
	if z != nil {
		_, _ = pairs.Delete(z.id) // Destruct returns no error
	}
}

// by returns one of the pair; nil for a word that names none.
func (p *pair) by(word string) *topkeys.Keys {
	switch word {
	case "denied":
		return p.denied
	case "charged":
		return p.charged
	}
	return nil
}

// Denied counts a request that the zone denies, or would deny.
func (z *Zone) Denied(key string) {
	if z != nil {
		z.denied.Add(uptime.Now(), key, 1, z.label)
	}
}

// Charged counts what a request has cost.
func (z *Zone) Charged(key string, units int64) {
	if z != nil {
		z.charged.Add(uptime.Now(), key, units, z.label)
	}
}

// Top returns the keys with the most, count at most. by is `denied` or `charged`.
func (z *Zone) Top(by string, count int) *control.Top {
	found := z.by(by).Top(uptime.Now(), count)
	since := time.Now().Add(found.Since - uptime.Now()) // the time of day for one of uptime
	top := &control.Top{
		Zone: z.id.zone, Store: z.id.store.Name, By: by, Since: since.UTC().Format(time.RFC3339),
		Total: found.Total, Hashed: z.label != nil, Keys: []control.TopKey{},
	}
	for _, key := range found.Keys {
		top.Keys = append(top.Keys, control.TopKey{Key: key.Key, Count: key.Count, Error: key.Error, Cut: key.Cut})
	}
	return top
}
