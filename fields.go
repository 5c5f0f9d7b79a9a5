package slidingwindow

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// The words for which fields an answer gets.
const (
	fieldsIETF   = "ietf"
	fieldsLegacy = "legacy"
	fieldsBoth   = "both"
	fieldsNone   = "none"
)

// Names of the fields as Go writes them; names do not depend on case.
const (
	fieldRateLimit = "Ratelimit"
	fieldPolicy    = "Ratelimit-Policy"
)

// policyFields is what RateLimit fields say of a zone's limits.
type policyFields struct {
	names  []string // one per policy
	policy string   // the value of RateLimit-Policy
}

// newPolicyFields names each policy: as the zone, if it has one limit, else with
// the length of its window, as in `api:1s` and `api:1h`.
func newPolicyFields(zone string, policies []window.Policy) *policyFields {
	f := new(policyFields)
	list := make(httpsfv.List, 0, len(policies))
	for _, p := range policies {
		name := zone
		if len(policies) > 1 {
			name += ":" + shortDuration(p.Window)
		}
		f.names = append(f.names, name)
		item := httpsfv.NewItem(name)
		item.Params.Add("q", min(p.Limit, maxSFInteger))
		item.Params.Add("w", min(seconds(p.Window), maxSFInteger))
		list = append(list, item)
	}
	f.policy, _ = httpsfv.Marshal(list) // no error: names and numbers are in range
	return f
}

// maxSFInteger is the largest integer of a structured field (RFC 9651).
const maxSFInteger = 999_999_999_999_999

// setFields tells the client where it stands, as draft-ietf-httpapi-ratelimit-headers-11
// has it, as many sites did before it, or both.
func (h *Handler) setFields(header http.Header, req *request) {
	if h.Headers == fieldsIETF || h.Headers == fieldsBoth {
		list := make(httpsfv.List, 0, len(req.decisions))
		for i := range req.charges {
			fields, ds := req.policyFields(i), req.decisionsOf(i)
			header[fieldPolicy] = append(header[fieldPolicy], fields.policy)
			for j := range ds {
				item := httpsfv.NewItem(fields.names[j])
				item.Params.Add("r", min(ds[j].Remaining, maxSFInteger))
				item.Params.Add("t", min(seconds(ds[j].EffectiveWindow), maxSFInteger))
				list = append(list, item)
			}
		}
		if value, err := httpsfv.Marshal(list); err == nil {
			header[fieldRateLimit] = append(header[fieldRateLimit], value)
		}
	}
	if h.Headers == fieldsLegacy || h.Headers == fieldsBoth {
		d := req.tightest()
		header["X-Ratelimit-Limit"] = []string{strconv.FormatInt(d.Limit, 10)}
		header["X-Ratelimit-Remaining"] = []string{strconv.FormatInt(d.Remaining, 10)}
		header["X-Ratelimit-Reset"] = []string{strconv.FormatInt(seconds(d.ResetAfter), 10)}
	}
}

// retryAfter returns the value of Retry-After: whole seconds, rounded up, at
// least 1, later by a random share of up to jitter. It is 0 if waiting cannot
// help.
func (h *Handler) retryAfter(wait time.Duration) int64 {
	if wait == window.Never {
		return 0
	}
	extra := time.Duration(rand.Float64() * h.Jitter * float64(wait)) //nolint:gosec // spreads load, keeps no secret
	return max(1, seconds(wait+min(extra, window.Never-wait)))
}

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
