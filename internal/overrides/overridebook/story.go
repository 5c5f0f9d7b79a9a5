package overridebook

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// The log of each Caddy tells the story of all overrides: who has set or deleted which, at this Caddy or at another one, and when
// they end. Keys are in it only where a zone has log_key.

// MostTold is the number of records up to which each has a line of its own.
const MostTold = 16

// news has what the log of this process has, by store: versions, and records that have ended. Two books of a store, as of handlers
// that differ in a timeout, report one change once.
var news struct {
	sync.Mutex
	told map[string]bool
}

// isNews reports whether something of a store was not told yet. It is told then.
func isNews(store, what string) bool {
	news.Lock()
	defer news.Unlock()
	if what = store + "\x00" + what; news.told[what] {
		return false
	}
	if news.told == nil || len(news.told) > 2*overrides.MaxRecords {
		news.told = make(map[string]bool)
	}
	news.told[what] = true
	return true
}

// Fields returns what the log says of a record.
func (b *Book) Fields(r *overrides.Record) []zap.Field {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fieldsOf(r)
}

// fieldsOf is Fields. mu is held.
func (b *Book) fieldsOf(r *overrides.Record) []zap.Field {
	kind, keys := r.Selector()
	fields := []zap.Field{zap.String("zone", r.Zone), zap.String("id", r.ID), zap.String("effect", r.Effect()), zap.String("for", kind)}
	if keys != "" && b.logsKeys(r.Zone) {
		fields = append(fields, zap.String("key", keys))
	}
	if r.Until != nil {
		fields = append(fields, zap.String("until", r.Until.UTC().Format(time.RFC3339)))
	}
	return fields
}

// logsKeys reports whether keys of a zone may be in the log: all zones of the name have log_key. mu is held.
func (b *Book) logsKeys(zone string) (all bool) {
	for z := range b.zones {
		if z.Name != zone {
			continue
		}
		if all = z.LogsKeys; !all {
			return false
		}
	}
	return all
}

// tell writes a line for each record, or one for all if they are many. mu is held.
func (b *Book) tell(one, many string, records []*overrides.Record) {
	logger := storestate.Logger(b.name)
	if len(records) > MostTold {
		logger.Info(many, zap.Int("overrides", len(records)))
		return
	}
	for _, r := range records {
		logger.Info(one, append(b.fieldsOf(r), control.Why{Reason: r.Reason, By: r.By}.Fields()...)...)
	}
}

// tellHeard logs what other Caddys have changed, when this one finds other records in the store. Records found at the start
// are not logged. mu is held.
func (b *Book) tellHeard(found *Copy) {
	if b.copy.Version == "" && b.copy.Read.IsZero() || !isNews(b.name, found.Version) {
		return
	}
	now, old, held := b.clock.Now(), byID(b.copy.Records), byID(found.Records)
	var set, deleted []*overrides.Record
	for id, r := range held {
		if o := old[id]; o == nil || textOf(o) != textOf(r) {
			set = append(set, r)
		}
	}
	for id, r := range old {
		if held[id] == nil && !r.Expired(now) {
			deleted = append(deleted, r)
		}
	}
	b.tell("override was deleted at another Caddy", "overrides were deleted at another Caddy", deleted)
	b.tell("override was set at another Caddy", "overrides were set at another Caddy", set)
}

// tellEnded tells which records have ended since it was last called. mu is held.
func (b *Book) tellEnded(now time.Time) {
	var ended []*overrides.Record
	for i := range b.copy.Records {
		r := &b.copy.Records[i]
		if r.Expired(now) && r.Until.After(b.checked) && isNews(b.name, r.ID+" "+r.Until.String()) {
			ended = append(ended, r)
		}
	}
	if now.After(b.checked) {
		b.checked = now
	}
	b.tell("override has ended", "overrides have ended", ended)
}
