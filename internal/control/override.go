package control

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// MaxOverrides is the longest body with overrides that the API reads, in bytes.
const MaxOverrides = 2 * overrides.MaxRecords * overrides.MaxRecord

// OverrideFilter selects what overrides/list answers.
type OverrideFilter struct {
	// The name of a zone. Default: all.
	Zone string `json:"zone,omitempty"`
	// The name of a store. Default: all.
	Store string `json:"store,omitempty"`
}

// OverrideList is the answer to POST /sliding_window/overrides/list.
type OverrideList struct {
	Stores []OverrideSet `json:"stores"`
}

// OverrideSet has the overrides of a store. It is what overrides/replace takes, too: Store and Records.
type OverrideSet struct {
	Store   string `json:"store,omitempty"`
	Version string `json:"version,omitempty"`
	// Whether the store lacks overrides that this Caddy knows, and refuses to take them back. They stay in force.
	Lost bool `json:"lost,omitempty"`
	// When the store last confirmed the version, in RFC 3339.
	Confirmed string             `json:"confirmed,omitempty"`
	Records   []overrides.Record `json:"records"`
	// Why records are not applied that do not fit their zone, by ID.
	Misfits map[string]string `json:"misfits,omitempty"`
}

// OverrideState says in short which overrides of a store hold in this Caddy.
type OverrideState struct {
	Version string `json:"version"` // empty if none was ever set
	Count   int    `json:"count"`
	// How many of them are not applied, because they do not fit their zone.
	Misfits int `json:"misfits"`
	// Seconds since the store last confirmed the version; null if it never has, or keeps none for others.
	Age  *float64 `json:"age"`
	Lost bool     `json:"lost,omitempty"` // see OverrideSet
}

// OverrideChange is the answer to overrides/set, delete and replace.
type OverrideChange struct {
	Store   string `json:"store"`
	Version string `json:"version"`
	// The records that were set, that were deleted, or that took the place of all others.
	Records []overrides.Record `json:"records"`
	// What holds for other Caddys that share the store.
	Note string `json:"note,omitempty"`

	// By ID, and in answers of overrides/set only: what the override did that a record replaces, which limits of the zone do
	// not hold any more for its keys, as they are configured, and why it may select no key.
	Replaced  map[string]string `json:"replaced,omitempty"`
	InPlaceOf map[string]string `json:"in_place_of,omitempty"`
	Warnings  map[string]string `json:"warnings,omitempty"`
}

// DecodeFilter reads a filter. Its errors do not quote the body.
func DecodeFilter(body []byte) (OverrideFilter, error) {
	var f OverrideFilter
	if !utf8.Valid(body) {
		return f, errors.New("body: must be an object with zone and store, or without")
	}
	if err := overrides.DecodeOne(body, &f); errors.Is(err, overrides.ErrTwice) {
		return f, err
	} else if err != nil {
		return f, errors.New("body: must be an object with zone and store, or without")
	}
	return f, nil
}

// DecodeSet reads what overrides/replace takes. Its errors do not quote the body.
func DecodeSet(body []byte) (OverrideSet, error) {
	var s OverrideSet
	if !utf8.Valid(body) {
		return s, errors.New("body: not valid UTF-8; a key with other bytes cannot be named")
	}
	if err := overrides.DecodeOne(body, &s); err != nil {
		if list := bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")); list || strings.HasPrefix(err.Error(), "body: must be an object") {
			return s, errors.New("body: must be an object with records")
		}
		if fields, ok := strings.CutPrefix(err.Error(), "body: unknown field; use "); ok {
			return s, errors.New("body: unknown field; use records and store, and in a record " + fields)
		}
		return s, err
	}
	if s.Records == nil {
		return s, errors.New("records: required; send an empty list to delete all overrides")
	}
	return s, nil
}
