package overridebook

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Look takes up what the store has, if that has changed, and writes what the store has lost. While the store is away
// the last copy stays. The store must be one that keeps overrides. From Begin to End the book looks by itself
// now and then.
func (b *Book) Look(ctx context.Context) { _ = b.look(ctx) }

// look is Look, and returns why the store cannot be asked, or does not take what it has lost.
func (b *Book) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	own, _ := b.Current()
	if err := b.Follow(ctx); errors.Is(err, window.ErrForeign) { // else again at the next look: a part of a Cluster can be away
		b.failed(ctx, err)
	}
	version, fields, err := b.shared.ReadOverrides(ctx, own.Version)
	if err != nil {
		b.failed(ctx, err)
		return err
	}
	if version == own.Version {
		b.confirm(own.Version)
		return nil
	}
	theirs, err := parse(version, fields)
	if err != nil {
		err = fmt.Errorf("%s: %w: %w: the hash of the overrides has %w; delete it", b.name, window.ErrUnavailable, window.ErrForeign, err)
		b.failed(ctx, err)
		return err
	}
	merged, dropped := merge(&own, &theirs)
	merged.Read = b.clock.Now()
	merged.Past = retired(own, merged.Records, merged.Read)
	if isSame(&merged, &theirs) {
		merged.Version = version
		b.follows(own.Version, merged)
		return nil
	}
	merged.Version = own.Version
	isOwn := isSame(&merged, &own)
	if !isOwn {
		merged.Version = nextVersion(later(own.Version, version), merged.Read)
	}
	written, err := b.write(ctx, &theirs, &merged)
	if !isOwn { // holds here, whether the store has it or not
		b.follows(own.Version, merged)
	}
	if err == nil && !written {
		return nil // another Caddy was first
	}
	if written {
		b.confirm(merged.Version)
	}
	b.noteLoss(ctx, &theirs, &merged, dropped, err)
	return err
}

// follows applies what a look has found, unless this Caddy has changed the records since.
func (b *Book) follows(known string, found Copy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.copy.Version == known {
		b.tellHeard(&found)
		b.install(found)
	}
}

// confirm notes that the store has a version.
func (b *Book) confirm(version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.copy.Version == version {
		b.copy.Read, b.lost, b.refused = b.clock.Now(), false, false
	}
}

// noteLoss tells that the store lacks records that this Caddy knows. A server that takes no write, as one that is no
// master any more, may not be the one that counts: then this is told if it goes on for lossPatience.
func (b *Book) noteLoss(ctx context.Context, theirs, merged *Copy, dropped int, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	missing := 0
	for i := range merged.Records {
		if id := merged.Records[i].ID; theirs.Stamps[id] != merged.Stamps[id] {
			missing++
		}
	}
	fields := []zap.Field{zap.Int("missing", missing), zap.Int("overrides", len(merged.Records))}
	if dropped > 0 {
		fields = append(fields, zap.Int("dropped", dropped))
	}
	b.mu.Lock()
	now := uptime.Now()
	if err != nil && !b.refused {
		b.refused, b.refusedAt = true, now
	}
	isLost := err != nil && now-b.refusedAt >= lossPatience
	tell := err == nil || isLost && !b.lost
	b.lost = isLost
	b.mu.Unlock()
	if !tell {
		return
	}
	metrics.OverrideErrorsTotal.WithLabelValues(b.name, "lost").Inc()
	if err == nil {
		storestate.Logger(b.name).Warn("the store had lost overrides, and has them again", fields...)
		return
	}
	storestate.Logger(b.name).Warn("the store has lost overrides, and does not take them back; the last ones stay in force", append(fields, zap.Error(err))...)
}

// failed counts a look that could not read the store.
func (b *Book) failed(ctx context.Context, err error) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case errors.Is(err, window.ErrForeign):
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "foreign").Inc()
		if b.foreignLog.Due(foreignInterval) {
			storestate.Logger(b.name).Error("a key that all Caddys share holds other data; what they know stays in force, and is written again when the key is deleted", zap.Error(err))
		}
	default:
		metrics.OverrideErrorsTotal.WithLabelValues(b.name, "away").Inc()
	}
}

// write writes next in place of before, which the store has. It reports false if the store has something else by now.
func (b *Book) write(ctx context.Context, before, next *Copy) (bool, error) {
	old, fields := fieldsOf(before), fieldsOf(next)
	var gone []string
	for name, text := range old {
		if now, ok := fields[name]; !ok {
			gone = append(gone, name)
		} else if now == text {
			delete(fields, name)
		}
	}
	version, err := b.shared.WriteOverrides(ctx, before.Version, next.Version, gone, fields)
	return err == nil && version == next.Version, err
}
