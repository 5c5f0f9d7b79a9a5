package banbook

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// Zone has the bans of a zone. All methods are safe for concurrent use, and none waits for a server; those of a nil Zone
// know of no ban.
type Zone struct {
	book     *Book
	name     string
	facts    [2]atomic.Int64         // known facts: of keys and networks that are denied, and of those in shadow
	networks atomic.Pointer[[]*fact] // the smallest first; nil: none
	logsKeys atomic.Bool
}

// Zone returns the zone of a name: always the same one.
func (b *Book) Zone(name string) *Zone {
	z, ok := b.zones.Load(name)
	if !ok {
		z, _ = b.zones.LoadOrStore(name, &Zone{book: b, name: name})
	}
	return z.(*Zone)
}

// LogKeys says whether the log and events may have the keys of bans.
func (z *Zone) LogKeys(may bool) { z.logsKeys.Store(may) }

// Ban is a ban that is in force.
type Ban struct {
	Left  time.Duration // until its end
	Until time.Time     // by the store's clock
	Level int64         // of the next ban
}

// Ban returns the ban of a key, and whether there is one. Of a zone that denies nothing, shadow is true: its bans deny nothing
// either.
func (z *Zone) Ban(key string, shadow bool) (Ban, bool) {
	if z == nil || z.facts[place(shadow)].Load() == 0 {
		return Ban{}, false
	}
	now := z.book.now()
	f := z.find(key, shadow)
	if !f.bans(now) {
		if f = z.network(key, now, shadow); f == nil {
			return Ban{}, false
		}
	}
	return Ban{time.Duration(f.ends-now) * time.Millisecond, time.UnixMilli(f.Record.Until), f.Level}, true
}

func place(shadow bool) int {
	if shadow {
		return 1
	}
	return 0
}

// find returns what is known of a key; nil if nothing is. A key may still be banned under a former secret.
func (z *Zone) find(key string, shadow bool) *fact {
	n := &z.book.names
	if n.hasher == nil && len(key) <= longestKey {
		var room [2 + 64 + longestKey]byte // what names.of returns is on the heap
		return z.book.known.get(append(appendZone(room[:0], "", z.name, shadow), key...))
	}
	f := z.book.known.get(n.of(z.name, key, shadow))
	if f == nil {
		f = z.book.known.get(n.formerly(z.name, key, shadow)) // no member has an empty name
	}
	return f
}

// network returns the ban of the smallest network that has a key which is an address.
func (z *Zone) network(key string, now int64, shadow bool) *fact {
	all := z.networks.Load()
	if all == nil || shadow {
		return nil
	}
	a, ok := overrides.AddressIn(key)
	if !ok {
		return nil
	}
	for _, f := range *all {
		if f.bans(now) && f.prefix.Contains(a) {
			return f
		}
	}
	return nil
}

// Strike notes that the zone denied a request of a key, or would have denied it. The store hears of it soon, and while it is
// away the strike counts in this process.
func (z *Zone) Strike(key string, rule *bans.Rule, shadow bool) {
	if name, isNew := z.isNew(key, shadow); isNew {
		z.strike(name, key, rule, shadow)
	}
}

// StrikeLater is Strike after a time, if the key is to blame then.
func (z *Zone) StrikeLater(key string, rule *bans.Rule, wait time.Duration, isToBlame func() bool) {
	if name, isNew := z.isNew(key, false); isNew {
		time.AfterFunc(wait, func() {
			if isToBlame() {
				z.strike(name, key, rule, false)
			}
		})
	}
}

// isNew returns the name of a key, and whether the key has not struck within a second.
func (z *Zone) isNew(key string, shadow bool) (name string, isNew bool) {
	if z == nil {
		return "", false
	}
	b := z.book
	name = string(b.names.of(z.name, key, shadow))
	return name, b.recent.isNew(maphash.String(b.known.seed, name), b.now())
}

func (z *Zone) strike(name, key string, rule *bans.Rule, shadow bool) {
	b := z.book
	w := bans.Write{
		Op: bans.Strike, Member: name, Former: string(b.names.formerly(z.name, key, shadow)),
		Rule: *rule, Draw: rand.Int64N(1000), //nolint:gosec // spreads ends
	}
	if !b.remote {
		_, _, _ = b.call(context.Background(), []bans.Write{w}) // a table has no error
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heir != nil {
		b.heir.Zone(z.name).Strike(key, rule, shadow)
		return
	}
	if b.waiting[name] || len(b.pending) >= mostPending {
		return
	}
	b.waiting[name] = true
	b.pending = append(b.pending, w)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// put notes what is known of a member, or forgets it if f is nil. calls must be locked.
func (b *Book) put(name string, f *fact) {
	before := b.known.put(name, f)
	is := f
	if is == nil {
		is = before
	}
	if is == nil {
		return
	}
	z := b.Zone(is.Zone)
	n := &z.facts[place(is.Shadow)]
	if before == nil {
		n.Add(1)
	}
	if f == nil {
		n.Add(-1)
	}
	if is.Network != "" {
		z.putNetwork(before, f)
	}
}

func (z *Zone) putNetwork(before, f *fact) {
	var all []*fact
	if old := z.networks.Load(); old != nil {
		all = slices.DeleteFunc(slices.Clone(*old), func(o *fact) bool { return o == before })
	}
	if f != nil {
		all = append(all, f)
	}
	if len(all) == 0 {
		z.networks.Store(nil)
		return
	}
	slices.SortFunc(all, func(a, b *fact) int { return b.prefix.Bits() - a.prefix.Bits() })
	z.networks.Store(&all)
}

// tell logs the bans that began with strikes.
func (b *Book) tell(writes []bans.Write, a *bans.Answer) {
	for i, w := range writes {
		if !a.Done[i] || w.Op != bans.Strike {
			continue
		}
		m, _ := parseName(w.Member)
		if m.Shadow {
			metrics.BansTotal.WithLabelValues(m.Zone, "shadow").Inc()
			continue
		}
		metrics.BansTotal.WithLabelValues(m.Zone, "denials").Inc()
		b.announce(w.Member, "a key was banned", control.Why{})
	}
}

// announce logs a ban that has begun, and sends its event, unless a further answer of the store has it. An operator says why.
func (b *Book) announce(name, message string, why control.Why) {
	f := b.known.get([]byte(name))
	if f == nil {
		return
	}
	until, seconds := time.UnixMilli(f.Record.Until).UTC().Format(time.RFC3339), float64(f.Record.Until-f.Began)/1000
	data := map[string]any{"zone": f.Zone, "until": until, "seconds": seconds, "level": f.Level}
	fields := []zap.Field{zap.String("zone", f.Zone), zap.String("until", until), zap.Float64("seconds", seconds), zap.Int64("level", f.Level)}
	if why != (control.Why{}) {
		data["by"], data["reason"] = why.By, why.Reason
		fields = append(fields, why.Fields()...)
	}
	if b.Zone(f.Zone).logsKeys.Load() || f.Network != "" {
		data["key"] = f.shown()
		fields = append(fields, zap.String("key", f.shown()))
	}
	events.Emit(events.Banned, data)
	storestate.Logger(b.name).Info(message, fields...)
}

// shown returns the key, or what is kept of it.
func (m *member) shown() string {
	switch {
	case m.Network != "":
		return m.Network
	case m.KeyHash != "":
		return m.KeyHash
	}
	return m.Key
}
