package control

import "errors"

// The words for whether a zone denies. A percentage of keys is another way.
const (
	EnforceOn     = "on"
	EnforceShadow = "shadow"
	// The zone decides as with on, denies no request, and tells later handlers.
	EnforceMark = "mark"
	// The zone denies no request and counts nothing. This is in answers only: where all zones are to be in shadow, zones that
	// cannot count without denying are exempt.
	EnforceExempt = "exempt"
)

// Enforce says whether zones deny while Caddy runs, whatever is configured.
type Enforce struct {
	// The name of the zone. It excludes All.
	Zone string `json:"zone,omitempty"`
	// The name of the store. Required if several stores have a zone of the name.
	Store string `json:"store,omitempty"`
	// All zones.
	All bool `json:"all,omitempty"`
	// `on`, `shadow`, `mark`, a percentage such as `25%`, or `config` for what is configured.
	Mode string `json:"mode"`
	// How long it holds. Required, but for `config`.
	TTL string `json:"ttl,omitempty"`
	Why
}

// DecodeEnforce reads what is to be enforced. Its errors are those of decode.
func DecodeEnforce(body []byte) (Enforce, error) {
	var e Enforce
	err := decode(body, &e, words{
		object: "zone or all, and mode",
		fields: "zone, store, all, mode, ttl, reason and by",
		types:  map[string]string{"all": "true or false"},
	})
	switch {
	case err != nil:
		return e, err
	case e.All && (e.Zone != "" || e.Store != ""):
		return e, errors.New("all: cannot be combined with zone or store")
	case !e.All && e.Zone == "":
		return e, errors.New("zone: required; GET /sliding_window/zones lists the zones; or send all")
	case e.Mode == "":
		return e, errors.New("mode: required; use one of on, shadow, mark, config, or a percentage such as 25%")
	case e.Mode == "config" && e.TTL != "":
		return e, errors.New("ttl: cannot be combined with mode config, which lasts")
	case e.Mode == EnforceOn && e.TTL == "":
		return e, errors.New("ttl: required; say how long it holds, such as 1h; for good, write enforce on in the configuration, or take the line out, which means the same")
	case e.Mode != "config" && e.TTL == "":
		return e, errors.New("ttl: required; say how long it holds, such as 1h")
	}
	return e, e.check()
}

// Enforced is the answer to POST /sliding_window/enforce.
type Enforced struct {
	Zones []ZoneEnforced `json:"zones"`
}

// ZoneEnforced is how one zone is enforced now.
type ZoneEnforced struct {
	Zone    string `json:"zone"`
	Store   string `json:"store"`
	Enforce string `json:"enforce"`
	// Until when, in RFC 3339; empty if it is what is configured.
	Until string `json:"until,omitempty"`
	// Why the zone cannot be enforced so; it is enforced as before.
	Error string `json:"error,omitempty"`
	// Why it is exempt in place of shadow, and why it does not hold yet on other Caddys that share the store.
	Note string `json:"note,omitempty"`
}
