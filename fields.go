package slidingwindow

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

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
	f := &policyFields{names: make([]string, 0, len(policies))}
	var room [fieldRoom]byte
	line := room[:0]
	for _, p := range policies {
		name := zone
		if len(policies) > 1 {
			name += ":" + shortDuration(p.Window)
		}
		f.names = append(f.names, name)
		line = appendItem(line, name, 'q', p.Limit, 'w', seconds(p.Window))
	}
	f.policy = string(line)
	return f
}

// fieldRoom is enough for the value of most fields, in bytes.
const fieldRoom = 192

// maxSFInteger is the largest integer of a structured field (RFC 9651).
const maxSFInteger = 999_999_999_999_999

// appendItem appends an item to a list of structured fields: a name, which holds
// nothing that has to be escaped, and two parameters.
func appendItem(line []byte, name string, param1 byte, value1 int64, param2 byte, value2 int64) []byte {
	if len(line) > 0 {
		line = append(line, ", "...)
	}
	line = append(line, '"')
	line = append(line, name...)
	line = append(line, '"', ';', param1, '=')
	line = strconv.AppendInt(line, min(value1, maxSFInteger), 10)
	line = append(line, ';', param2, '=')
	return strconv.AppendInt(line, min(value2, maxSFInteger), 10)
}

// setFields tells the client where it stands, as draft-ietf-httpapi-ratelimit-headers-11
// has it, as many sites did before it, or both.
func (h *Handler) setFields(header http.Header, req *request) {
	if h.Headers == fieldsIETF || h.Headers == fieldsBoth {
		var room [fieldRoom]byte
		line := room[:0]
		for i := range req.charges {
			fields, ds := req.policyFields(i), req.decisionsOf(i)
			addLine(header, fieldPolicy, fields.policy, &req.lines[0])
			for j := range ds {
				line = appendItem(line, fields.names[j], 'r', ds[j].Remaining, 't', seconds(ds[j].EffectiveWindow))
			}
		}
		addLine(header, fieldRateLimit, string(line), &req.lines[1])
	}
	if h.Headers == fieldsLegacy || h.Headers == fieldsBoth {
		d := req.tightest()
		header["X-Ratelimit-Limit"] = []string{strconv.FormatInt(d.Limit, 10)}
		header["X-Ratelimit-Remaining"] = []string{strconv.FormatInt(d.Remaining, 10)}
		header["X-Ratelimit-Reset"] = []string{strconv.FormatInt(seconds(d.ResetAfter), 10)}
	}
}

// addLine adds a line to a field of which the name is written as Go does. Room is
// for the usual first one.
func addLine(header http.Header, field, line string, room *[1]string) {
	lines := header[field]
	if len(lines) == 0 {
		lines = room[:0]
	}
	header[field] = append(lines, line)
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
