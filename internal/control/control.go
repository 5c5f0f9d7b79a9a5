// Package control holds what the admin API of sliding_window reads and answers. Both the API and
// the command line use it. It does not import Caddy.
package control

import (
	"errors"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// Base is the path that the API is below.
const Base = "/sliding_window/"

// MaxBody is the longest body that the API reads, in bytes.
const MaxBody = 64 << 10

// Selector names one counter of a zone, or those of a request.
type Selector struct {
	// The name of the zone.
	Zone string `json:"zone"`
	// The name of the store. Required if several stores have a zone of the name.
	Store string `json:"store,omitempty"`
	// The value of the key's placeholder.
	Key *string `json:"key,omitempty"`
	// The values of the key's placeholders, in order. It excludes Key.
	Values []string `json:"values,omitempty"`
	// An example of a request, instead of all of the above.
	Request *ExampleRequest `json:"request,omitempty"`
}

// DecodeSelector reads a selector. Its errors are those of decode.
func DecodeSelector(body []byte) (Selector, error) {
	var s Selector
	if err := decode(body, &s, words{
		encoding: "; a key with other bytes cannot be named",
		object:   "zone, and key or values",
		fields:   "zone, store, key and values, or request with method, uri, headers, remote and server",
		types:    map[string]string{"request": "an object with uri and remote", "values": "a list of strings"},
	}); err != nil {
		return s, err
	}
	return s, s.check()
}

var errNoZone = errors.New("zone: required; GET /sliding_window/zones lists the zones")

func (s *Selector) check() error {
	switch {
	case s.Request != nil && (s.Zone != "" || s.Store != "" || s.Key != nil || s.Values != nil):
		return errors.New("request: cannot be combined with zone, store, key or values")
	case s.Request != nil:
	case s.Zone == "":
		return errNoZone
	case s.Key != nil && s.Values != nil:
		return errors.New("values: cannot be combined with key; send one of them")
	}
	return nil
}

// Zones is the answer to GET /sliding_window/zones.
type Zones struct {
	Zones []ZoneInfo `json:"zones"`
}

// ZoneInfo is a zone of the configuration that runs.
type ZoneInfo struct {
	Name      string      `json:"name"`
	Store     string      `json:"store"`
	Key       string      `json:"key"` // the template, as a Caddyfile has it
	Limits    []LimitInfo `json:"limits"`
	Algorithm string      `json:"algorithm"`
	OnError   OnError     `json:"on_error"`
	Enforce   string      `json:"enforce"`
	// Until when, in RFC 3339, if an operator has set it; empty if it is what is configured.
	EnforceUntil string `json:"enforce_until,omitempty"`
	// Why an operator has set it.
	EnforceReason string           `json:"enforce_reason,omitempty"`
	Outcomes      map[string]int64 `json:"outcomes"` // since the process began
	// With the query `recent` of status only.
	Recent *Recent `json:"recent,omitempty"`
	// Whether the zone has top talkers.
	TopTalkers bool `json:"top_talkers,omitempty"`
}

// Recent is what a zone has decided in the last three minutes, or since this Caddy has the zone. Lists have rates
// per second, the oldest first. A list of which all rates are 0 is left out.
type Recent struct {
	Until     string    `json:"until"` // in RFC 3339
	Step      float64   `json:"step"`  // seconds between two rates
	Samples   int       `json:"samples"`
	Decisions []float64 `json:"decisions,omitempty"`
	// What the zone has denied, for want of a store, too.
	Denied []float64 `json:"denied,omitempty"`
	// What it would have denied if it were enforced.
	WouldDeny []float64 `json:"would_deny,omitempty"`
}

// LimitInfo is a limit as configured.
type LimitInfo struct {
	Max    string `json:"max"` // a placeholder, perhaps
	Window string `json:"window"`
	// The bits of the network that the limit counts in place of the key, such as `24/48`.
	Tier string `json:"tier,omitempty"`
	// Whether the limit is one of requests at the same time, which has no window.
	Concurrent bool `json:"concurrent,omitempty"`
	// The options lease and hold of such a limit; empty for others.
	Lease string `json:"lease,omitempty"`
	Hold  string `json:"hold,omitempty"`
}

// String writes the limit as in `600 in 1m tier 24/48`.
func (l LimitInfo) String() string {
	if l.Concurrent {
		return l.Max + " at the same time"
	}
	if l.Tier == "" {
		return l.Max + " in " + l.Window
	}
	return l.Max + " in " + l.Window + " tier " + l.Tier
}

// Status is the answer to GET /sliding_window/status.
type Status struct {
	Version string      `json:"version"` // of the plugin
	Stores  []StoreInfo `json:"stores"`
	Alerts  []Alert     `json:"alerts"` // that have fired
	// Zones with load.
	Loads []ZoneLoad `json:"loads,omitempty"`
	// Zones with bans in force, as far as this Caddy knows.
	Bans []ZoneBans `json:"bans,omitempty"`
	// With the query `zones` only.
	Zones []ZoneInfo `json:"zones,omitempty"`
}

// ZoneLoad is how a zone follows the load.
type ZoneLoad struct {
	Zone  string `json:"zone"`
	Store string `json:"store"`
	// What the limits with short windows are multiplied by.
	Factor float64 `json:"factor"`
	// `cpu` and `memory` as shares, `latency` in seconds; those that the zone uses and that are
	// known.
	Signals map[string]float64 `json:"signals"`
}

// ZoneBans is how many bans of a zone are in force.
type ZoneBans struct {
	Zone  string `json:"zone"`
	Store string `json:"store"`
	Bans  int    `json:"bans"`
}

// Alert is that of a zone, which has fired and is not resolved.
type Alert struct {
	Zone  string `json:"zone"`
	Store string `json:"store"`
	Since string `json:"since"` // in RFC 3339
	// The share and the number of requests that were denied within the time of the alert.
	DeniedRatio float64 `json:"denied_ratio"`
	Denied      int64   `json:"denied"`
	Requests    int64   `json:"requests"`
}

// States of a store.
const (
	StateOK   = "ok"
	StateAway = "away"
)

// StoreInfo is the state of a store.
type StoreInfo struct {
	Name string `json:"name"`
	// StateOK or StateAway.
	State string `json:"state"`
	// When it went away, in RFC 3339, and why.
	Since string `json:"since,omitempty"`
	Cause string `json:"cause,omitempty"`
	// Nodes of a Cluster that are away.
	Nodes []Node `json:"nodes,omitempty"`
	// How many Caddys share the store, itself included, as it was last seen; with `share` and `concurrent` only.
	Instances int64 `json:"instances,omitempty"`
	// Which those are; empty while the store is away.
	Members []Member `json:"members,omitempty"`
	// Counters that are kept; the memory store only.
	Keys *int64 `json:"keys,omitempty"`
	// Overrides that this Caddy knows of the store.
	Overrides OverrideState `json:"overrides"`
}

// Member is a Caddy that shares a store.
type Member struct {
	Name   string  `json:"name"`          // its host, and something random
	Own    bool    `json:"own,omitempty"` // it is the Caddy that answers
	Silent float64 `json:"silent"`        // seconds since the store has heard of it
}

// Node is a node of a Cluster that is away.
type Node struct {
	Name  string `json:"name"`
	Since string `json:"since"`
	Cause string `json:"cause"`
}

// Inspection is the answer to POST /sliding_window/inspect: what the next request meets.
type Inspection struct {
	Zone string `json:"zone"`
	// As it counts: grouped, folded and in one spelling.
	Key string `json:"key"`
	// That of which the key is a network, such as `24/48`.
	Tier string `json:"tier,omitempty"`
	// The name of the counter's key in Redis.
	RedisKey  string `json:"redis_key,omitempty"`
	Algorithm string `json:"algorithm"`
	// `redis` or `memory`, or instead of the store `lease`, `remembered`, `local`, `override` or `ban`.
	DecidedBy string       `json:"decided_by"`
	Limits    []LimitState `json:"limits"` // that are known
	Cost      *int64       `json:"cost"`   // of the next request; null if it needs a request
	// Null if what needs a request decides.
	WouldPass *bool          `json:"would_pass"`
	Enforce   string         `json:"enforce"` // see Zone
	Store     InspectedStore `json:"store"`
	// What only a request tells; nil if all is known.
	NeedsRequest *NeedsRequest `json:"needs_request,omitempty"`
	// The override of the key, and why it is not applied if it does not fit the zone.
	Override *overrides.Record `json:"override,omitempty"`
	Misfit   string            `json:"misfit,omitempty"`
	// The networks of the address, if the zone has tiers.
	Tiers []TierInspection `json:"tiers,omitempty"`
	// What is held of the requests at the same time; nil without concurrent.
	Concurrent *HeldState `json:"concurrent,omitempty"`
	// The ban of the key, which denies requests while the limits are not looked at; nil if it is not banned.
	Ban *InspectedBan `json:"ban,omitempty"`
}

// TierInspection is the part of an Inspection that is of a network alone.
type TierInspection struct {
	Tier      string            `json:"tier"`
	Key       string            `json:"key"`
	RedisKey  string            `json:"redis_key,omitempty"`
	DecidedBy string            `json:"decided_by"`
	Limits    []LimitState      `json:"limits"`
	WouldPass *bool             `json:"would_pass"`
	Override  *overrides.Record `json:"override,omitempty"`
	Misfit    string            `json:"misfit,omitempty"`
}

// HeldState is how many requests of a key are open at the same time, before the next one.
type HeldState struct {
	Max       int64 `json:"max"`
	Held      int64 `json:"held"` // above Max where that was higher, and where Caddys decided by themselves
	Remaining int64 `json:"remaining"`
	// As in LimitState and Inspection.
	Source    string `json:"source"`
	RedisKey  string `json:"redis_key,omitempty"`
	DecidedBy string `json:"decided_by"`
	// Which Caddys hold them; empty while the store is away.
	Holders []Holder `json:"holders"`
}

// Holder is a Caddy that has requests open.
type Holder struct {
	Name   string  `json:"name,omitempty"` // as in Member; empty with the memory store
	Held   int64   `json:"held"`
	Age    float64 `json:"age"`    // seconds for which it has had any open, without a break
	Silent float64 `json:"silent"` // seconds since the store has heard of it
}

// AddTier adds what the next request meets in a tier, or at the same time as others.
func (i *Inspection) AddTier(t *Inspection) {
	if t.Concurrent != nil {
		i.Concurrent = t.Concurrent
		if i.Override == nil {
			i.Override, i.Misfit = t.Override, t.Misfit
		}
		i.joinVerdict(t)
		return
	}
	i.Tiers = append(i.Tiers, TierInspection{t.Tier, t.Key, t.RedisKey, t.DecidedBy, t.Limits, t.WouldPass, t.Override, t.Misfit})
	i.joinVerdict(t)
}

// joinVerdict takes up that a part denies the request, or may.
func (i *Inspection) joinVerdict(t *Inspection) {
	if !t.Passes() && (i.WouldPass == nil || *i.WouldPass) {
		i.WouldPass = t.WouldPass
	}
}

// InspectedBan is the ban of a key. It may not hold for requests that except matches.
type InspectedBan struct {
	Until string  `json:"until"` // RFC 3339, by the store's clock
	Left  float64 `json:"left"`  // in seconds, to the millisecond
	Level int64   `json:"level"` // by how many factors the next ban is longer than the first
}

// NeedsRequest is what an inspection by key does not know.
type NeedsRequest struct {
	Limits []NeededLimit `json:"limits,omitempty"`
	// The template of the cost, or CostOfBody.
	Cost string `json:"cost,omitempty"`
}

// CostOfBody is in the place of a cost that the body of a request tells.
const CostOfBody = "body"

// NeededLimit is a limit with placeholders that only a request has.
type NeededLimit struct {
	LimitInfo
	// As in LimitState; null if the window needs a request, too, or if the algorithm keeps no count of units.
	Used       *int64   `json:"used"`
	ResetAfter *float64 `json:"reset_after"`
}

// Passes reports whether the next request is known to pass.
func (i *Inspection) Passes() bool { return i.WouldPass != nil && *i.WouldPass }

// LimitState is what is used of a limit. Used and Remaining are before the next request. Used is above Max
// where more was charged than the limit had left, and where the limit was higher then.
type LimitState struct {
	Max       int64  `json:"max"`
	Window    string `json:"window"`
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	// Seconds until the request would pass, to the millisecond; null if waiting cannot help, and if the cost is not known.
	RetryAfter *float64 `json:"retry_after"`
	// Seconds until nothing is used, to the millisecond.
	ResetAfter float64 `json:"reset_after"`
	// One of the sources below.
	Source string `json:"source"`
}

// Sources of a limit.
const (
	SourceConfig   = "config"
	SourceFallback = "fallback" // where the placeholders of the limit have no valid value
	SourceAway     = "away"     // nothing was decided, as the store is away
	SourceLoad     = "load"     // where the load of this Caddy has scaled it
	SourceOverride = "override"
	SourceBan      = "ban"
)

// InspectedStore is the store of an Inspection.
type InspectedStore struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Since string `json:"since,omitempty"`
	Cause string `json:"cause,omitempty"`
}
