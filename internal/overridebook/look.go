package overridebook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
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
	version, records, orders, err := b.shared.ReadOverrides(ctx, known)
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if err != nil {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "away").Inc()
		return
	}
	b.follow(ctx, orders)
	if records == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.copy.Version == known {
			b.note(version)
		}
		return
	}
	now := overridestore.Copy{Version: version, Read: time.Now()}
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
	b.copy.Read = time.Now()
	lost := version != b.copy.Version
	if lost && !b.lost {
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "lost").Inc()
		storestate.Logger(b.name).Warn("the store has lost the overrides; the last ones stay in force; set one, or replace them, to write them again", zap.Int("overrides", len(b.copy.Records)))
	}
	b.lost = lost
}

// follow takes up the orders that the store has, by zone, and sends those that it lacks.
func (b *Book) follow(ctx context.Context, orders map[string]string) {
	b.mu.Lock()
	var zones []*Zone // one of each name
	for z := range b.zones {
		if !slices.ContainsFunc(zones, func(o *Zone) bool { return o.Name == z.Name }) {
			zones = append(zones, z)
		}
	}
	b.mu.Unlock()
	unsent := make(map[string]string)
	for _, z := range zones {
		isNew, own := z.Orders.Hear(orders[z.Name])
		if own != "" {
			unsent[z.Name] = own
		}
		if isNew {
			z.Obey(b.name, enforce.ParseOrder(orders[z.Name]))
		}
	}
	_ = b.Send(ctx, zones, unsent) // again at the next look
}

// Send gives orders, by zone, to the Caddys that share the store.
func (b *Book) Send(ctx context.Context, zones []*Zone, orders map[string]string) error {
	if b.shared == nil || len(orders) == 0 {
		return nil
	}
	if err := b.shared.WriteEnforce(ctx, orders, enforce.Longest); err != nil {
		return err
	}
	for _, z := range zones {
		if text := orders[z.Name]; text != "" {
			z.Orders.Sent(text)
		}
	}
	return nil
}
