package control

import "errors"

// ResetOrder is what POST /sliding_window/reset reads: one counter, and why it is reset.
type ResetOrder struct {
	Selector
	Why
}

// DecodeReset reads what is to be reset. Its errors are those of decode.
func DecodeReset(body []byte) (ResetOrder, error) {
	var o ResetOrder
	err := decode(body, &o, words{
		encoding: "; a key with other bytes cannot be named",
		object:   "zone, and key or values",
		fields:   "zone, store, key and values, reason and by",
		types:    map[string]string{"request": "left out, as only inspect takes one", "values": "a list of strings"},
	})
	switch {
	case err != nil:
		return o, err
	case o.Request != nil:
		return o, errors.New("request: only inspect takes one; send zone, and key or values")
	}
	if err := o.Selector.check(); err != nil {
		return o, err
	}
	return o, o.Why.check()
}

// Reset is the answer to POST /sliding_window/reset.
type Reset struct {
	Zone  string `json:"zone"`
	Key   string `json:"key"`
	Tier  string `json:"tier,omitempty"` // of which the key is a network; other tiers are not reset
	Store string `json:"store"`
	// Whether the store has forgotten the counter. If not it is away, and is told once it is back.
	Done bool `json:"done"`
	// What holds for other Caddys.
	Note string `json:"note,omitempty"`
}
