package overrides

import (
	"fmt"
	"strconv"
	"strings"
)

// Effect says in a few words what a record does: deny, exempt, times 2.5, or 600 in 1m, 2000 in 24h, 4 at the same time.
func (r *Record) Effect() string {
	switch {
	case r.Deny:
		return "deny"
	case r.Exempt:
		return "exempt"
	case r.Factor != 0:
		return "times " + strconv.FormatFloat(r.Factor, 'g', -1, 64)
	}
	limits := make([]string, len(r.Limits))
	for i, l := range r.Limits {
		limits[i] = fmt.Sprintf("%d in %s", l.Max, l.Window)
	}
	if r.Concurrent > 0 {
		limits = append(limits, fmt.Sprintf("%d at the same time", r.Concurrent))
	}
	return strings.Join(limits, ", ")
}

// Selector returns the kind of keys that a record selects: key, values, cidr, pattern or all. The keys are empty if they are not
// known, as those that are hashed, and for all.
func (r *Record) Selector() (kind, keys string) {
	kind, keys = r.kind()
	switch kind {
	case "hashes":
		return "key", ""
	case "values":
		return kind, strings.Join(r.Values, ", ")
	}
	return kind, keys
}
