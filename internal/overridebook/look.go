package overridebook

import (
	"context"
	"encoding/json"
	"errors"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
)

// Look takes up what the store has, if that has changed. While the store is away the last copy stays. The store
// must be one that keeps overrides. From Begin to End the book looks every two seconds by itself.
func (b *Book) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	b.mu.Lock()
	known := b.copy.Version
	b.mu.Unlock()
	_ = b.follow(ctx) // again at the next look: a part of a Cluster can be away
	version, records, err := b.shared.ReadOverrides(ctx, known)
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if err != nil {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "away").Inc()
		return
	}
	if records == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.copy.Version == known {
			b.note(version)
		}
		return
	}
	now := overridestore.Copy{Version: version, Read: b.clock.Now()}
	for id, text := range records {
		var r overrides.Record
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.ID != id {
			continue // of another version of this plugin, or of somebody else
		}
		now.Records = append(now.Records, r)
	}
	b.mu.Lock()
	newer := b.copy.Version == known // else this Caddy has changed them in the meantime
	if newer {
		now.Past = retired(b.copy, now.Records, now.Read)
		b.install(now)
	}
	b.mu.Unlock()
	if newer {
		b.keep(now)
	}
}

// note notes that the store has no other version than this Caddy, or none. mu is held.
func (b *Book) note(version string) {
	b.copy.Read = b.clock.Now()
	lost := version != b.copy.Version
	if lost && !b.lost {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "lost").Inc()
		storestate.Logger(b.name).Warn("the store has lost the overrides; the last ones stay in force; set one, or replace them, to write them again", zap.Int("overrides", len(b.copy.Records)))
	}
	b.lost = lost
}
