package overrides

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Each fault of a record is refused with the field and the cure.
func TestCompleteRefuses(t *testing.T) {
	const one = "; send exactly one"
	for body, want := range map[string]string{
		`{}`:                       `zone: required; GET /sliding_window/zones lists the zones`,
		`{"zone":"z","deny":true}`: `key: 0 of key, values, cidr, pattern and all are given` + one,
		`{"zone":"z","key":"a","all":true,"deny":true}`:                                      `key: 2 of key, values, cidr, pattern and all are given` + one,
		`{"zone":"z","values":[],"deny":true}`:                                               `values: empty; send a value for each placeholder of the key, or all for all keys`,
		`{"zone":"z","key":"a"}`:                                                             `limits: 0 of limits or concurrent, factor, deny and exempt are given` + one,
		`{"zone":"z","key":"a","concurrent":0}`:                                              `limits: 0 of limits or concurrent, factor, deny and exempt are given` + one,
		`{"zone":"z","key":"a","concurrent":4,"factor":2}`:                                   `limits: 2 of limits or concurrent, factor, deny and exempt are given` + one,
		`{"zone":"z","key":"a","concurrent":-1}`:                                             `concurrent: must be 1 or more; send deny to deny everything`,
		`{"zone":"z","key":"a","concurrent":"4"}`:                                            `concurrent: must be a whole number`,
		`{"zone":"z","key":"a","deny":true,"factor":2}`:                                      `limits: 2 of limits or concurrent, factor, deny and exempt are given` + one,
		`{"zone":"z","key":"a","limits":[]}`:                                                 `limits: empty; send one limit or more, deny or exempt`,
		`{"zone":"z","key":"a","limits":[{"max":-1,"window":"1m"}]}`:                         `limits: limit -1 is negative; use 0 to deny everything`,
		`{"zone":"z","key":"a","limits":[{"max":1,"window":"soon"}]}`:                        `limits: window: must be a duration such as 90s, 5m, 1h, 1d or 1w`,
		`{"zone":"z","key":"a","limits":[{"max":1,"window":"60s"},{"max":2,"window":"1m"}]}`: `limits: two have the window 1m; keep the smaller one`,
		`{"zone":"z","key":"a","limits":[{"max":9007199254740992,"window":"1s"}]}`:           `limits: limit 9007199254740992 × window 1s is too large: limit × milliseconds must not exceed 2^53`,
		`{"zone":"z","key":"a","factor":-1}`:                                                 `factor: must be above 0 and at most 1000000; send deny to deny everything`,
		`{"zone":"z","key":"a","factor":1e7}`:                                                `factor: must be above 0 and at most 1000000; send deny to deny everything`,
		`{"zone":"z","cidr":"192.0.2.1/24","deny":true}`:                                     `cidr: has bits below its length; write 192.0.2.0/24`,
		`{"zone":"z","cidr":"192.0.2.1","deny":true}`:                                        `cidr: must be a network such as 192.0.2.0/24 or 2001:db8::/48`,
		`{"zone":"z","cidr":"::ffff:192.0.2.0/120","deny":true}`:                             `cidr: is a network of IPv4 addresses; write it as 192.0.2.0/24`,
		`{"zone":"z","pattern":"*","deny":true}`:                                             `pattern: * is every key; send all`,
		`{"zone":"z","pattern":"a*b","deny":true}`:                                           `pattern: the * must be at its beginning or its end`,
		`{"zone":"z","pattern":"*a*","deny":true}`:                                           `pattern: must have one *, at its beginning or its end; send key for a key without`,
		`{"zone":"z","pattern":"` + strings.Repeat("a", 256) + `*","deny":true}`:             `pattern: longer than 256 bytes`,
		`{"zone":"z","key":"a","deny":true,"ttl":"soon"}`:                                    `ttl: must be a duration of 1s or more, such as 30m, 2h or 7d`,
		`{"zone":"z","key":"a","deny":true,"ttl":"1m","until":"2026-12-31T23:59:59Z"}`:       `ttl: cannot be combined with until; send one of them`,
		`{"zone":"z","key":"a","deny":true,"until":"2020-12-31T23:59:59Z"}`:                  `until: is over; send a later time, or delete the override`,
		`{"zone":"z","key":"a","deny":true,"until":"tomorrow"}`:                              `until: must be a time as 2026-12-31T23:59:59Z; send ttl for a time from now on`,
		`{"zone":"z","key":7,"deny":true}`:                                                   `key: must be a string`,
		`{"zone":"z","key":"a","deny":"yes"}`:                                                `deny: must be true, or left out`,
		`{"zone":"z","key":"a","limits":[{"max":"1","window":"1m"}]}`:                        `limits.max: must be a whole number`,
		`{"zone":"z","key":"a","limit":"1/1m"}`:                                              `body: unknown field; use zone, store, one of key, values, cidr, pattern and all, one of limits or concurrent, factor, deny and exempt, until or ttl, reason and by`,
		`{"zone":"z","key":"a","deny":true} {}`:                                              `body: more than one JSON value; send one object, or a list`,
		`{"zone":"z","key":"secret`:                                                          `body: not valid JSON`,
		"\"\xff\"":                                                                           `body: not valid UTF-8; a key with other bytes cannot be named`,
		`7`:                                                                                  `body: must be an object with zone, a selector and a limit, or a list of them`,
	} {
		records, err := Decode([]byte(body))
		if err == nil {
			err = records[0].Complete(now)
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", body, err, want)
		}
	}
	r := Record{Zone: "z", Key: text("a"), Deny: true, Reason: strings.Repeat("a", 1024)}
	if err := r.Complete(now); err == nil || !strings.HasPrefix(err.Error(), "reason: the record takes 1") {
		t.Errorf("long reason: got %v", err)
	}
}

// A record that is complete says when it ends, and its limits in one way. Its ID follows from the
// selector alone.
func TestComplete(t *testing.T) {
	r := complete(t, Record{Key: text("a"), Limits: []RecordLimit{{5, "1d"}, {3, "1w2h"}, {1, "90s"}, {1, "60s"}}, TTL: "1h30m", ID: "made up"})
	if r.TTL != "" || !r.Until.Equal(now.Add(90*time.Minute)) || !r.Created.Equal(now) {
		t.Errorf("got %+v", r)
	}
	if r.Limits[0].Window != "24h" || r.Limits[1].Window != "170h" || r.Limits[2].Window != "1m30s" || r.Limits[3].Window != "1m" {
		t.Errorf("got limits %v", r.Limits)
	}
	same, other := complete(t, Record{Key: text("a"), Exempt: true}), complete(t, Record{Key: text("b")})
	if !r.IsSame(&same) || r.IsSame(&other) || same.Expired(now.Add(1e6*time.Hour)) || !r.Expired(*r.Until) {
		t.Errorf("got %+v, %+v, %+v", r, same, other)
	}
	one, two := complete(t, Record{Hashes: []string{"new", "old"}}), complete(t, Record{Hashes: []string{"old"}})
	if one.ID == two.ID || !one.IsSame(&two) {
		t.Error("a key under the former of two secrets is another one")
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		limit  int64
		factor float64
		want   int64
	}{{0, 5, 0}, {10, 2.5, 25}, {1, 0.001, 1}, {3, 0.5, 2}, {1 << 52, 2, 1 << 53}} {
		if got, err := Scale(c.limit, c.factor); got != c.want || err != nil {
			t.Errorf("%d × %v: got %d, %v, want %d", c.limit, c.factor, got, err, c.want)
		}
	}
	if _, err := Scale(1<<52, 3); err == nil {
		t.Error("above 2^53: got no error")
	}
}

// Any body is refused with words that do not quote it, or gives records that stay what they are
// when they are written and read.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"zone":"z","key":"a","limits":[{"max":5,"window":"1d"}],"ttl":"2h","reason":"r"}`))
	f.Add([]byte(`[{"zone":"z","cidr":"192.0.2.0/24","factor":0.5},{"zone":"z","pattern":"*a","deny":true,"until":"2026-12-31T23:59:59Z"}]`))
	f.Add([]byte(`{"zone":"z","values":["a",""],"exempt":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		records, err := Decode(body)
		if err != nil {
			return
		}
		for _, r := range records {
			if r.Complete(now) != nil {
				continue
			}
			b, err := json.Marshal(r)
			if err != nil || len(b) > MaxRecord {
				t.Fatalf("%+v: %d bytes, %v", r, len(b), err)
			}
			again, err := Decode(b)
			if err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			if c, _ := json.Marshal(again[0]); string(c) != string(b) {
				t.Fatalf("got %s, want %s", c, b)
			}
			s, _ := Compile(again, Target{Name: r.Zone, Single: true, IPv4Prefix: 32, IPv6Prefix: 128, KeyOf: anyZone.KeyOf})
			s.Find("192.0.2.1")
		}
	})
}

// A record says in a few words what it does.
func TestEffect(t *testing.T) {
	limits := []RecordLimit{{600, "1m"}, {2000, "24h"}}
	for want, r := range map[string]Record{
		"deny":                   {Deny: true},
		"exempt":                 {Exempt: true},
		"times 2.5":              {Factor: 2.5},
		"600 in 1m, 2000 in 24h": {Limits: limits},
		"20 at the same time":    {Concurrent: 20},
		"600 in 1m, 2000 in 24h, 1 at the same time": {Limits: limits, Concurrent: 1},
	} {
		if got := r.Effect(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
