// Package overrides holds limits that operators set for keys of a zone while Caddy runs: what a
// record is, and which record decides on a key. It does not import Caddy.
package overrides

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what is kept for a store.
const (
	MaxRecords = 1000
	MaxRecord  = 1 << 10 // bytes of a record in JSON
	MaxLiteral = 256     // bytes of a pattern
)

// Record is the limit of a key, or of several.
type Record struct {
	// Names the selector of the record. It follows from the selector, so that a second record with
	// the same selector replaces the first.
	ID string `json:"id"`
	// The name of the zone.
	Zone string `json:"zone"`
	// The name of the store in what an operator sends, if several have a zone of the name.
	Store string `json:"store,omitempty"`

	// The value of the key's placeholder.
	Key *string `json:"key,omitempty"`
	// The values of the key's placeholders, in order.
	Values []string `json:"values,omitempty"`
	// A network of addresses.
	CIDR string `json:"cidr,omitempty"`
	// Text with one *, at its beginning or its end.
	Pattern string `json:"pattern,omitempty"`
	// All keys of the zone.
	All bool `json:"all,omitempty"`
	// With hash_keys in place of Key and Values: the HMAC of the key under each secret, in hex.
	Hashes []string `json:"hashes,omitempty"`

	// Limits in place of those of the zone.
	Limits []RecordLimit `json:"limits,omitempty"`
	// Requests at the same time, in place of those of the zone.
	Concurrent int64 `json:"concurrent,omitempty"`
	// By which the zone's limits, and its requests at the same time, are multiplied.
	Factor float64 `json:"factor,omitempty"`
	// Whether requests are denied, and charge nothing.
	Deny bool `json:"deny,omitempty"`
	// Whether requests pass, and charge nothing.
	Exempt bool `json:"exempt,omitempty"`

	// When the record ends; never if it is nil.
	Until *time.Time `json:"until,omitempty"`
	// Until as a time from now on, in what an operator sends.
	TTL string `json:"ttl,omitempty"`
	// Why, and who says so.
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// When the record was set.
	Created time.Time `json:"created"`
}

// RecordLimit is a limit of a record.
type RecordLimit struct {
	Max    int64  `json:"max"`
	Window string `json:"window"`
}

// kind returns the name of the record's selector in JSON, and its text.
func (r *Record) kind() (kind, text string) {
	switch {
	case r.CIDR != "":
		return "cidr", r.CIDR
	case r.Pattern != "":
		return "pattern", r.Pattern
	case r.All:
		return "all", ""
	case r.Key != nil:
		return "key", *r.Key
	case len(r.Hashes) > 0:
		return "hashes", r.Hashes[0]
	}
	var all []byte
	for _, value := range r.Values {
		all = append(append(strconv.AppendInt(all, int64(len(value)), 10), ':'), value...)
	}
	return "values", string(all)
}

// identify sets the ID of the record.
func (r *Record) identify() {
	kind, text := r.kind()
	sum := sha256.Sum256([]byte(r.Zone + "\x00" + kind + "\x00" + text))
	r.ID = hex.EncodeToString(sum[:8])
}

// IsSame reports whether two records have the same selector. With hash_keys, their writers may know
// different secrets.
func (r *Record) IsSame(o *Record) bool {
	if r.ID == o.ID {
		return true
	}
	if r.Zone != o.Zone {
		return false
	}
	for _, hash := range r.Hashes {
		for _, other := range o.Hashes {
			if hash == other {
				return true
			}
		}
	}
	return false
}

// Expired reports whether the record has ended at now.
func (r *Record) Expired(now time.Time) bool { return r.Until != nil && !now.Before(*r.Until) }

// Decode reads records that an operator sends: an object, or a list of them. Its errors name the
// field, and never quote the body: that holds keys of clients, and Caddy logs errors.
func Decode(body []byte) ([]Record, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("body: not valid UTF-8; a key with other bytes cannot be named")
	}
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '[' {
		var r Record
		err := DecodeOne(body, &r)
		return []Record{r}, err
	}
	records := []Record{}
	err := DecodeOne(body, &records)
	return records, err
}

// DecodeOne reads one JSON value with known fields. Its errors do not quote the body.
func DecodeOne(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return plainError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("body: more than one JSON value; send one object, or a list")
	}
	return CheckNames(body)
}

// plainError returns an error of decoding without the input that it quotes.
func plainError(err error) error {
	wrong, at := new(json.UnmarshalTypeError), new(time.ParseError)
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		field := strings.TrimPrefix(wrong.Field, "records.")
		return fmt.Errorf("%s: must be %s", field, wordFor(field))
	case errors.As(err, &wrong):
		return errors.New("body: must be an object with zone, a selector and a limit, or a list of them")
	case errors.As(err, &at), strings.HasPrefix(err.Error(), "Time."):
		return errors.New("until: must be a time as 2026-12-31T23:59:59Z; send ttl for a time from now on")
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return errors.New("body: unknown field; use zone, store, one of key, values, cidr, pattern and all, one of limits or concurrent, factor, deny and exempt, until or ttl, reason and by")
	}
	return errors.New("body: not valid JSON")
}

// wordFor says what a field of a record holds.
func wordFor(field string) string {
	switch field {
	case "records":
		return "a list of overrides"
	case "values", "hashes":
		return "a list of strings"
	case "limits":
		return `a list such as [{"max":1000,"window":"1m"}]`
	case "limits.max", "concurrent":
		return "a whole number"
	case "factor":
		return "a number"
	case "all", "deny", "exempt":
		return "true, or left out"
	}
	return "a string"
}
