package adminapi

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

// complete makes a record that an operator sends one that can be kept.
func complete(z *running.ActiveZone, r *overrides.Record, now time.Time) error {
	if err := r.Complete(now); err != nil {
		return err
	}
	if err := seal(z, r); err != nil {
		return err
	}
	return r.Complete(now)
}

// isSame reports whether two records have the same selector in the zone.
func isSame(z *running.ActiveZone, a, b *overrides.Record) bool {
	if a.IsSame(b) {
		return true
	}
	key, ok := keyOf(z, a)
	other, same := keyOf(z, b)
	return ok && same && key == other
}

// keyOf returns the key of a record, as the zone counts it.
func keyOf(z *running.ActiveZone, r *overrides.Record) (key string, ok bool) {
	values := r.Values
	if r.Key != nil {
		values = []string{*r.Key}
	}
	if values == nil || r.Zone != z.Name() {
		return "", false
	}
	key, _, err := z.Key.KeyOf(values)
	return key, err == nil
}

// seal makes the selector of a record as it is kept: the key in the one spelling that counts, or its
// HMAC under each secret.
func seal(z *running.ActiveZone, r *overrides.Record) error {
	values := r.Values
	if r.Key != nil {
		values = []string{*r.Key}
		if z.Key.Placeholders > 1 {
			return fmt.Errorf("key: the zone's key has %d placeholders; send values, in order", z.Key.Placeholders)
		}
	}
	if values == nil {
		return nil
	}
	key, empty, err := z.Key.KeyOf(values)
	if err != nil {
		return err
	}
	if empty && slices.ContainsFunc(values, func(v string) bool { return v != "" }) {
		return errors.New("key: is empty as the zone counts it; send the whole host or path of which the placeholder is a part")
	}
	book := z.Store.Overrides
	if book.Hasher() == nil {
		// The key is spelt once more when the record is compiled.
		if again, _, err := z.Key.KeyOf([]string{key}); z.Key.Single != "" && err == nil && again == key {
			r.Key, r.Values = &key, nil
		}
		return nil
	}
	r.Key, r.Values, r.Hashes = nil, nil, book.Hashes(key)
	return nil
}
