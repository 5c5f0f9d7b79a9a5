package overrides

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// ErrTwice says that an object has two members of a name. encoding/json would take the last one, where
// another reader takes the first.
var ErrTwice = errors.New("body: a field is given twice; send it once")

// CheckNames returns ErrTwice if an object in a JSON value has two members whose names differ in case at most.
// It returns nil for what is not JSON.
func CheckNames(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	var open []map[string]bool // the names so far of each value that is open; nil for a list
	isName := false
	for {
		t, err := d.Token()
		if err != nil {
			return nil //nolint:nilerr // the end, or what is not JSON
		}
		switch t {
		case json.Delim('{'):
			open, isName = append(open, make(map[string]bool)), true
			continue
		case json.Delim('['):
			open, isName = append(open, nil), false
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		default:
			if !isName {
				break
			}
			name := strings.ToLower(t.(string)) // the decoder makes sure of it
			if names := open[len(open)-1]; names[name] {
				return ErrTwice
			} else {
				names[name] = true
			}
			isName = false
			continue
		}
		isName = len(open) > 0 && open[len(open)-1] != nil
	}
}
