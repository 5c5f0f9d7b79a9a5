package replay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"maps"
	"slices"
	"time"
)

// Report is what a replay found. Times are in UTC, RFC 3339.
type Report struct {
	Log   Log    `json:"log"`
	Zones []Zone `json:"zones"`
	// What changes when the configuration takes the place of another one.
	Against *Against `json:"against,omitempty"`
	// What differs from a Caddy that serves, and what makes the figures less certain.
	Notes []string `json:"notes"`
}

// Log is what was read.
type Log struct {
	Files    []string `json:"files"`
	From     string   `json:"from,omitempty"`
	To       string   `json:"to,omitempty"`
	Lines    int64    `json:"lines"`
	Requests int64    `json:"requests"`
	// Lines of other loggers, and lines that could not be read.
	Other  int64    `json:"other"`
	Broken int64    `json:"broken"`
	First  []string `json:"first_broken,omitempty"`
	// Requests that came so late in the log that others had been decided on.
	Late int64 `json:"late"`
	// Requests that were answered 429.
	Were429 int64 `json:"already_429"`
}

// Zone is what a zone would have decided.
type Zone struct {
	Zone     string  `json:"zone"`
	Enforce  string  `json:"enforce"`
	Requests int64   `json:"requests"`
	Denied   int64   `json:"denied"`
	Share    float64 `json:"denied_share"` // of requests
	// The part of denied whose keys the zone only counts.
	ShadowDenied int64 `json:"shadow_denied"`
	// Denied if clients did what Retry-After asks for: those that they would not have sent are left out.
	Obeying int64   `json:"denied_if_obeying"`
	Limits  []Limit `json:"limits"`
	// Denied without a key, by an override or by a ban.
	Others   int64 `json:"denied_without_limit"`
	Keys     int64 `json:"keys"`
	Affected int64 `json:"keys_denied"`
	// Whether keys and keys_denied are estimates, as there were more than fit into the memory.
	Estimated bool  `json:"estimated"`
	Were429   int64 `json:"already_429"`
	Excluded  int64 `json:"excluded"`
	Top       []Key `json:"top"`
	// Hours with denials, and all hours between the first and the last request.
	Hours []Hour `json:"hours"`
}

// Limit is one of a zone.
type Limit struct {
	Limit  string `json:"limit"`
	Denied int64  `json:"denied"`
}

// Key is one that was denied.
type Key struct {
	Key      string  `json:"key"` // or its hash
	Requests int64   `json:"requests"`
	Denied   int64   `json:"denied"`
	Share    float64 `json:"denied_share"`
	Obeying  int64   `json:"denied_if_obeying"`
	First    string  `json:"first"`
	Longest  float64 `json:"longest_seconds"`
}

// Hour is one of a log.
type Hour struct {
	Start    string `json:"start"`
	Requests int64  `json:"requests"`
	Denied   int64  `json:"denied"`
}

// DeniedShare returns the largest share of requests that a zone denies.
func (r *Report) DeniedShare() (share float64, zone string) {
	for _, z := range r.Zones {
		if z.Share > share {
			share, zone = z.Share, z.Zone
		}
	}
	return share, zone
}

// report returns what was counted, of one zone or of all.
func (t *tally) report(o *Options) []Zone {
	all := []Zone{}
	for _, z := range t.zones {
		if o.Zone == "" || o.Zone == z.info.name {
			all = append(all, t.zone(z, o))
		}
	}
	return all
}

func (t *tally) zone(z *zoneTally, o *Options) Zone {
	r := Zone{
		Zone: z.info.name, Enforce: cmp.Or(z.info.enforce, "on"), Requests: z.requests, Denied: z.denied, Share: share(z.denied, z.requests),
		ShadowDenied: z.shadow, Obeying: z.tries, Others: z.others, Affected: int64(len(z.affected)) + z.dropped,
		Were429: z.were429, Excluded: z.excluded, Limits: []Limit{}, Top: []Key{}, Hours: []Hour{},
	}
	r.Keys, r.Estimated = z.keys.keys()
	r.Estimated = r.Estimated || z.dropped > 0
	for i, limit := range z.info.limits {
		r.Limits = append(r.Limits, Limit{limit, z.byLimit[i]})
	}
	for _, key := range z.top(o.Top) {
		a := z.affected[key]
		k := Key{Key: shownKey(key, o.Keys), Denied: a.denied, Obeying: a.tries, First: stamp(a.first), Longest: float64(a.longest) / 1000}
		if k.Requests = z.keys.requests(maphash.String(t.seed, key)); k.Requests > 0 {
			k.Share = share(k.Denied, k.Requests)
		}
		r.Top = append(r.Top, k)
	}
	for _, at := range slices.Sorted(maps.Keys(z.hours)) {
		h := z.hours[at]
		r.Hours = append(r.Hours, Hour{stamp(at * hourLast), h.requests, h.denied})
	}
	return r
}

// shownKey returns a key as a report shows it. Without --keys that is its hash: two reports have the same one. The empty
// key is no secret.
func shownKey(key string, keys bool) string {
	if keys || key == "" {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}

func share(part, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
