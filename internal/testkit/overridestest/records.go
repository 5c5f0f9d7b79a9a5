// Package overridestest has overrides of keys, for tests.
package overridestest

import "github.com/slidingwindow/caddy-sliding-window/internal/overrides"

// Denied returns a record that denies a key.
func Denied(key string) overrides.Record {
	return overrides.Record{Key: &key, Deny: true}
}

// Exempt returns a record that exempts a key.
func Exempt(key string) overrides.Record {
	return overrides.Record{Key: &key, Exempt: true}
}

// Multiplied returns a record that multiplies the limits of a key.
func Multiplied(key string, factor float64) overrides.Record {
	return overrides.Record{Key: &key, Factor: factor}
}

// Limited returns a record that limits a key.
func Limited(key string, limits ...overrides.RecordLimit) overrides.Record {
	return overrides.Record{Key: &key, Limits: limits}
}
