package overridebook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Errors of a change.
var (
	ErrChanged = errors.New("the overrides have changed since they were read; list them, and try again")
	ErrFull    = fmt.Errorf("there would be more than %d overrides; delete some, or use limits with placeholders for more customers than that", overrides.MaxRecords)
)

// Change has other records hold, here and in the store, and returns them. A version that is not empty must be
// that of the records which edit gets.
func (b *Book) Change(ctx context.Context, version string, edit func([]overrides.Record) ([]overrides.Record, error)) (overridestore.Copy, error) {
	b.changes.Lock()
	defer b.changes.Unlock()
	for range 5 {
		if b.shared != nil {
			b.Look(ctx)
		}
		before, lost := b.Current()
		if version != "" && version != before.Version {
			return before, ErrChanged
		}
		next := overridestore.Copy{Version: nextVersion(before.Version), Read: b.clock.Now()}
		var err error
		live := slices.DeleteFunc(slices.Clone(before.Records), func(r overrides.Record) bool { return r.Expired(next.Read) })
		if next.Records, err = edit(live); err != nil {
			return before, err
		}
		if len(next.Records) > overrides.MaxRecords {
			return before, ErrFull
		}
		next.Past = retired(before, next.Records, next.Read)
		written, err := b.write(ctx, before, next, lost)
		if err != nil {
			return before, err
		}
		if written {
			b.mu.Lock()
			b.install(next)
			b.mu.Unlock()
			if b.shared != nil {
				b.keep(next)
			}
			return next, nil
		}
	}
	return overridestore.Copy{}, ErrChanged
}

// write keeps what is next. It reports false if others have changed the records.
func (b *Book) write(ctx context.Context, before, next overridestore.Copy, lost bool) (bool, error) {
	if b.shared == nil {
		b.mu.Lock()
		storage := b.storage
		b.mu.Unlock()
		if err := storage.Save(next); err != nil {
			metrics.OverrideErrorsTotal.WithLabelValues(b.name, "storage").Inc()
			return false, fmt.Errorf("%w: writing to Caddy's storage: %w", window.ErrUnavailable, err)
		}
		return true, nil
	}
	known, old := before.Version, textsOf(before.Records)
	if lost || known == "" {
		known, old = "", nil
	}
	records := textsOf(next.Records)
	var gone []string
	for id, text := range old {
		if now, ok := records[id]; !ok {
			gone = append(gone, id)
		} else if now == text {
			delete(records, id)
		}
	}
	version, err := b.shared.WriteOverrides(ctx, known, next.Version, gone, records)
	return version == next.Version, err
}

// textsOf returns records as a store keeps them, by their IDs.
func textsOf(records []overrides.Record) map[string]string {
	texts := make(map[string]string, len(records))
	for i := range records {
		text, _ := json.Marshal(&records[i]) // checked when it was set
		texts[records[i].ID] = string(text)
	}
	return texts
}

// nextVersion returns a version that no other Caddy chooses, and that has a higher number.
func nextVersion(version string) string {
	number, _, _ := strings.Cut(version, "-")
	n, _ := strconv.ParseUint(number, 10, 63)
	return strconv.FormatUint(n+1, 10) + "-" + strconv.FormatUint(uint64(rand.Uint32()), 36) //nolint:gosec // tells apart, keeps no secret
}
