package control_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// plainWords are what errors say of a body of the overrides API, after the name of a field. None has room for what
// the body holds.
var plainWords = regexp.MustCompile(`^(body|zone|store|version|lost|confirmed|records|misfits|id|key|values|cidr|pattern|all|hashes|limits|limits\.max|limits\.window|factor|deny|exempt|until|ttl|reason|by|created): ` +
	`(must be (an? )?(string|number|whole number|list of strings|list of overrides|list such as \[\{"max":1000,"window":"1m"\}\]|true, or left out|time as 2026-12-31T23:59:59Z; send ttl for a time from now on|` +
	`object with zone, a selector and a limit, or a list of them|object with zone and store, or without|object with records)|a field is given twice; send it once|not valid JSON|not valid UTF-8; a key with other bytes cannot be named|more than one JSON value; send one object, or a list|` +
	`unknown field; use [a-z, ]+|required; send an empty list to delete all overrides)$`)

// FuzzAPIBodies gives one body to each path below overrides/: none panics, no error quotes the body, and what is read
// stays what it is when it is written and read.
func FuzzAPIBodies(f *testing.F) {
	for _, body := range []string{
		`{}`, `{"zone":"z","store":"memory"}`, `{"zone":1}`, `{"id":"0123456789abcdef"}`, `{"zone":"z","key":"anna"}`,
		`{"zone":"z","key":"192.0.2.1","limits":[{"max":1000,"window":"1m"},{"max":5,"window":"1d"}],"ttl":"2h","reason":"TICKET-7","by":"otto"}`,
		`[{"zone":"z","values":["a","b"],"factor":0.5},{"zone":"z","cidr":"2001:db8::/48","deny":true,"until":"2026-12-31T23:59:59Z"}]`,
		`{"records":[{"zone":"z","pattern":"*.example.com","exempt":true},{"zone":"z","all":true,"limits":[{"max":0,"window":"90s"}]}],"version":"4-x","store":"memory"}`,
		`{"records":null}`, `{"records":{}}`, `{"records":[{"limits":[{"max":"1"}]}]}`, `{"records":[{"until":"secret"}]}`, `{"records":[{"hashes":["00"]}]}`, `{"lost":1,"misfits":{"a":2}}`,
		`{"zone":"z"}{}`, `[`, `nul`, `{"zone":"\ud800"}`, "{\"zone\":\"\xff\"}", `{"factor":1e400}`, `{"records":[{"factor":-0.0,"created":"0000-01-01T00:00:00Z"}]}`,
	} {
		f.Add([]byte(body))
	}
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	zone := overrides.Target{
		Single: true, IPv4Prefix: 32, IPv6Prefix: 128,
		KeyOf: func(values []string) (string, error) { return strings.Join(values, " "), nil },
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		filter, err := control.DecodeFilter(body)
		checkRead(t, body, err, filter, new(control.OverrideFilter))
		set, err := control.DecodeSet(body)
		if err == nil && set.Records == nil {
			t.Errorf("%q was read as %+v", body, set)
		}
		checkRead(t, body, err, set, new(control.OverrideSet))
		records, err := overrides.Decode(body)
		checkRead(t, body, err, records, new([]overrides.Record))
		for _, r := range slices.Concat(records, set.Records) {
			if err := r.Complete(now); err != nil {
				if name, _, ok := strings.Cut(err.Error(), ":"); !ok || strings.Contains(name, " ") {
					t.Errorf("%q: the error is %q, want one that begins with a field", body, err)
				}
				continue
			}
			zone.Name = r.Zone
			if compiled, _ := overrides.Compile([]overrides.Record{r}, zone); compiled != nil {
				compiled.Find("192.0.2.1")
				compiled.LookBack("192.0.2.1")
			}
			if !r.IsSame(&r) || r.Expired(now) || r.Until != nil && r.Forgotten() < r.Until.UnixMilli() {
				t.Errorf("%q: %+v is complete", body, r)
			}
		}
	})
}

// checkRead checks an error, or else that v is the same when it is written and read again.
func checkRead(t *testing.T, body []byte, err error, v, again any) {
	t.Helper()
	if err != nil {
		if !plainWords.MatchString(err.Error()) {
			t.Errorf("%q: the error is %q", body, err)
		}
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		return // a year that JSON does not have; Complete says so
	}
	if err := overrides.DecodeOne(text, again); err != nil {
		t.Fatalf("%q: written as %s: %v", body, text, err)
	}
	if b, _ := json.Marshal(again); string(b) != string(text) {
		t.Errorf("%q: got %s, want %s", body, b, text)
	}
}
