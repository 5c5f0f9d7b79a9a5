package slidingwindow

import (
	"math"
	"net/http"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// reserve makes a charge spend what the answer is thought to cost. That is at most the smallest limit,
// so that a request can pass at all.
func (z *Zone) reserve(r *http.Request, c *window.Charge) {
	s := z.Settle
	if c.Cost == 0 {
		return
	}
	if s.fields != nil {
		c.Cost = s.estimate(r, c.Cost)
	}
	smallest := int64(math.MaxInt64)
	for _, p := range c.Policies {
		smallest = min(smallest, p.Limit)
	}
	c.Cost = max(1, min(c.Cost, smallest))
}

// estimate returns what an answer may cost at most by the body of its request, or otherwise.
func (s *Settle) estimate(r *http.Request, otherwise int64) int64 {
	output, size, found := s.fields.Read(r)
	result := usage.Result{Output: output}
	if s.Usage == "" {
		result = usage.Result{Input: output}
	}
	if s.perToken > 0 {
		result.Input = (size + s.perToken - 1) / s.perToken
	}
	units := s.weights.Units(result)
	if !found {
		return max(units, otherwise)
	}
	return units
}

// chargedBefore reports whether an earlier handler has charged the request in a zone.
func (req *request) chargedBefore(z *Zone) bool {
	earlier, _ := req.vars[requestVar].(*request)
	for ; earlier != nil; earlier = earlier.previous {
		if earlier.allowed && earlier.decisions != nil && slices.ContainsFunc(earlier.zones, func(other *Zone) bool { return other.use == z.use }) {
			return true
		}
	}
	return false
}
