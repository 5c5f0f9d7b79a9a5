package overridebook

import (
	"cmp"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// An override that ends leaves its keys to the limits of the zone, with windows that may be shorter. Until one window
// after its end, charges of these keys look as far back as the override did: an operator who sets it again, or
// replaces it by another one, finds what they have used in the meantime. Caddy's storage keeps such records, so that this outlives a restart.

// retired returns the records that matter no more than that, when next holds in place of before.
func retired(before Copy, next []overrides.Record, now time.Time) []overrides.Record {
	kept := make(map[string]time.Duration, len(next))
	for i := range next {
		if !next[i].Expired(now) {
			kept[next[i].ID] = next[i].Window()
		}
	}
	past := slices.Clone(before.Past)
	for _, r := range before.Records {
		if r.Limits == nil || kept[r.ID] >= r.Window() {
			continue
		}
		if !r.Expired(now) {
			r.Until = &now
		}
		past = append(past, r)
	}
	return withoutForgotten(past, now)
}

// withoutForgotten returns those of the records that still matter to how far back zones look; those that end last, if
// they are too many. It changes past.
func withoutForgotten(past []overrides.Record, now time.Time) []overrides.Record {
	past = slices.DeleteFunc(past, func(r overrides.Record) bool { return now.UnixMilli() >= r.Forgotten() })
	if over := len(past) - overrides.MaxRecords; over > 0 {
		slices.SortFunc(past, func(x, y overrides.Record) int { return cmp.Compare(x.Forgotten(), y.Forgotten()) })
		past = slices.Delete(past, 0, over)
	}
	return past
}

// lookBack completes what a zone knows of the book's records: how far back its keys look, beyond the windows of the
// configuration. mu is held.
func (b *Book) lookBack(z *Subscriber, next *snapshot, now time.Time) {
	var longer []overrides.Record
	for _, all := range [][]overrides.Record{b.copy.Records, b.copy.Past} {
		for _, r := range all {
			till := r.Forgotten()
			if r.Zone != z.Name || r.Window() <= z.Longest || till != 0 && now.UnixMilli() >= till {
				continue
			}
			longer = append(longer, r)
			if till != 0 && (next.backEnd == 0 || till < next.backEnd) {
				next.backEnd = till
			}
		}
	}
	if longer != nil {
		next.back, _ = overrides.Compile(longer, b.recordsOf(z))
	}
}
