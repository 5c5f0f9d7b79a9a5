// Package toptalkers notes which keys of zones are denied most and charged most, for operators and for a metric. [Keys] finds
// them in bounded memory.
package toptalkers

import (
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Tracker tracks the keys of a zone that are denied most and charged most. It is safe for concurrent use. A nil Tracker
// notes nothing.
type Tracker struct {
	*pair
	zone  engine.ZoneID
	tier  string // empty: keys of the zone itself
	label Label  // nil: keys are kept and shown as they are
}

// pair outlives reloads, and is the same for all handlers with the zone.
type pair struct {
	tier    string
	denied  *Keys // in requests
	charged *Keys // in units
}

// part tells the pairs of a zone apart. A pair with hashes holds no keys, also after hash_keys was added.
type part struct {
	hashed bool
	tier   string
}

// Destruct implements caddy.Destructor.
func (*pair) Destruct() error { return nil }

// Of returns the top talkers of the zone of a hold, or of one of its tiers. A store may hash their keys.
func Of(h *zonepool.Hold, store window.Store, tier string) *Tracker {
	z := &Tracker{zone: h.Zone, tier: tier}
	if hasher, ok := store.(engine.KeyHasher); ok && hasher.HashesKeys() {
		z.label = hasher.AppendKeyHash
	}
	z.pair = zonepool.Get(h, part{z.label != nil, tier}, func() *pair {
		return &pair{tier, New(uptime.Now()), New(uptime.Now())}
	})
	return z
}

// by returns one of the pair; nil for a word that names none.
func (p *pair) by(word string) *Keys {
	switch word {
	case "denied":
		return p.denied
	case "charged":
		return p.charged
	}
	return nil
}

// Denied counts a request that the zone denies, or would deny.
func (z *Tracker) Denied(key string) {
	if z != nil {
		z.denied.Add(uptime.Now(), key, 1, z.label)
	}
}

// Charged counts what a request has cost.
func (z *Tracker) Charged(key string, units int64) {
	if z != nil {
		z.charged.Add(uptime.Now(), key, units, z.label)
	}
}

// Top returns the keys with the most, count at most. by is `denied` or `charged`.
func (z *Tracker) Top(by string, count int) *control.Top {
	found := z.by(by).Top(uptime.Now(), count)
	since := time.Now().Add(found.Since - uptime.Now()) // the time of day for one of uptime
	top := &control.Top{
		Zone: z.zone.Zone, Tier: z.tier, Store: z.zone.Store.Name, By: by, Since: since.UTC().Format(time.RFC3339),
		Total: found.Total, Hashed: z.label != nil, Keys: []control.TopKey{},
	}
	for _, key := range found.Keys {
		top.Keys = append(top.Keys, control.TopKey{Key: key.Key, Count: key.Count, Error: key.Error, Cut: key.Cut})
	}
	return top
}

// Snapshot returns keys that were denied or charged in the last minutes; nil if the zone keeps hashes of them.
func (z *Tracker) Snapshot() []Key {
	if z == nil || z.label != nil {
		return nil
	}
	now := uptime.Now()
	return append(z.denied.Top(now, Entries).Keys, z.charged.Top(now, Entries).Keys...)
}
