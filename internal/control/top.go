package control

import (
	"errors"
	"fmt"
)

// MaxTop is how many keys a TopQuery may ask for.
const MaxTop = 256

// TopQuery asks for the keys of a zone that are denied or charged most.
type TopQuery struct {
	// The name of the zone.
	Zone string `json:"zone"`
	// The name of the store. Required if several stores have a zone of the name.
	Store string `json:"store,omitempty"`
	// `denied` or `charged`. Default: `denied`.
	By string `json:"by,omitempty"`
	// Networks of a tier, such as `24/48`. Default: keys of the zone.
	Tier string `json:"tier,omitempty"`
	// How many keys. Default: 10.
	Count *int `json:"count,omitempty"`
}

// DecodeTop reads a query, and sets what is left out. Its errors are those of decode.
func DecodeTop(body []byte) (TopQuery, error) {
	var q TopQuery
	err := decode(body, &q, words{
		object: "zone",
		fields: "zone, store, by, tier and count",
		types:  map[string]string{"count": "a whole number"},
	})
	if err != nil {
		return q, err
	}
	if q.By == "" {
		q.By = "denied"
	}
	if q.Count == nil {
		count := 10
		q.Count = &count
	}
	switch {
	case q.Zone == "":
		return q, errNoZone
	case q.By != "denied" && q.By != "charged":
		return q, errors.New("by: must be denied or charged")
	case *q.Count < 1 || *q.Count > MaxTop:
		return q, fmt.Errorf("count: must be from 1 to %d", MaxTop)
	}
	return q, nil
}

// Top is the answer to POST /sliding_window/top.
type Top struct {
	Zone  string `json:"zone"`
	Store string `json:"store"`
	By    string `json:"by"` // see TopQuery
	Tier  string `json:"tier,omitempty"`
	// From when on requests are counted, in RFC 3339.
	Since string `json:"since"`
	// Requests that were denied, or units that were charged, of all keys.
	Total int64 `json:"total"`
	// Whether keys are hashes, as the store has hash_keys.
	Hashed bool     `json:"hashed,omitempty"`
	Keys   []TopKey `json:"keys"`
}

// TopKey is a key with its part of the total: Count at most, and Count less Error at least.
type TopKey struct {
	Key   string `json:"key"`
	Count int64  `json:"count"`
	Error int64  `json:"error"`
	// Whether Key is only the beginning of the key.
	Cut bool `json:"cut,omitempty"`
}
