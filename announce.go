package slidingwindow

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/duration"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Names of the fields as Go writes them; names do not depend on case.
const (
	fieldRateLimit = "Ratelimit"
	fieldPolicy    = "Ratelimit-Policy"
)

// mostAnnounced is how many limits the fields of a response hold. Clients and proxies
// refuse headers that are too long.
const mostAnnounced = 10

// policyFields is what RateLimit fields say of a zone's limits.
type policyFields struct {
	limits []limitFields // one per policy
	policy string        // the value of RateLimit-Policy for all of them
}

// limitFields is what RateLimit fields say of one limit.
type limitFields struct {
	name   string
	policy string // its item of RateLimit-Policy
}

// newPolicyFields names each policy: as the zone, if it has one limit, else with
// the length of its window, as in `api:1s` and `api:1h`.
func newPolicyFields(zone string, policies []window.Policy) *policyFields {
	f := &policyFields{limits: make([]limitFields, len(policies))}
	var room [fieldRoom]byte
	line := room[:0]
	var endRoom [mostAnnounced]int
	ends := endRoom[:0]
	for i, p := range policies {
		name := zone
		if len(policies) > 1 {
			name += ":" + duration.Short(p.Window)
		}
		f.limits[i].name = name
		quota, length := announced(p)
		line = appendItem(line, name, 'q', quota, 'w', length)
		ends = append(ends, len(line))
	}
	f.policy = string(line)
	start := 0
	for i, end := range ends {
		f.limits[i].policy = f.policy[start:end]
		start = end + len(separator)
	}
	return f
}

// announced returns a quota and a number of seconds that say the same as the policy.
// RateLimit-Policy counts whole seconds: 2 in 100ms are announced as 20 in 1 s, and 2 in
// 1500ms as 4 in 3 s. The same limit holds in both: in a whole number of windows, no more
// passes than the sum of their limits.
func announced(p window.Policy) (quota, length int64) {
	milliseconds := int64(p.Window / time.Millisecond)
	times := 1000 / commonDivisor(1000, milliseconds)
	if p.Limit > maxSFInteger/times {
		return maxSFInteger, seconds(p.Window * time.Duration(times))
	}
	return p.Limit * times, milliseconds / (1000 / times)
}

// commonDivisor returns the greatest common divisor of two numbers above 0.
func commonDivisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// fieldRoom is enough for the value of most fields, in bytes.
const fieldRoom = 192

// maxSFInteger is the largest integer of a structured field (RFC 9651).
const maxSFInteger = 999_999_999_999_999

// separator is between the items of a list of structured fields.
const separator = ", "

// appendItem appends an item to a list of structured fields: a name, which holds
// nothing that has to be escaped, and two parameters.
func appendItem(line []byte, name string, param1 byte, value1 int64, param2 byte, value2 int64) []byte {
	if len(line) > 0 {
		line = append(line, separator...)
	}
	line = append(line, '"')
	line = append(line, name...)
	line = append(line, '"', ';', param1, '=')
	line = strconv.AppendInt(line, min(value1, maxSFInteger), 10)
	line = append(line, ';', param2, '=')
	return strconv.AppendInt(line, min(value2, maxSFInteger), 10)
}

// announce writes the lines of RateLimit-Policy and RateLimit: one each, with the
// tightest limits of the response, at most mostAnnounced of them.
func (req *request) announce(header http.Header) {
	if len(req.charges) > 1 || len(req.charges[0].Policies) > mostAnnounced || header[fieldPolicy] != nil || header[fieldRateLimit] != nil {
		req.announceSeveral(header)
		return
	}
	fields := req.policyFields(0)
	var room [fieldRoom]byte
	line := room[:0]
	ds := req.decisionsOf(0)
	for i := range ds {
		line = fields.limits[i].appendState(line, &ds[i])
	}
	req.setLines(header, fields.policy, string(line))
	req.announced = true
}

// announceSeveral is announce for several zones, or beside what is in the fields.
func (req *request) announceSeveral(header http.Header) {
	var itemRoom [mostAnnounced]item
	items := itemRoom[:0]
	before, beside := req.announcedBefore(header), false
	if before != nil {
		items = before.appendTightest(items)
	} else {
		beside = header[fieldPolicy] != nil || header[fieldRateLimit] != nil
	}
	items = req.appendOwn(items)
	var policyRoom, stateRoom [2 * fieldRoom]byte
	policy, state := policyRoom[:0], stateRoom[:0]
	if beside {
		policy = append(policy, strings.Join(header[fieldPolicy], separator)...)
		state = append(state, strings.Join(header[fieldRateLimit], separator)...)
	}
	for i := range items {
		if len(policy) > 0 {
			policy = append(policy, separator...)
		}
		policy = append(policy, items[i].policy...)
		state = items[i].appendState(state, items[i].decision)
	}
	req.setLines(header, string(policy), string(state))
	req.announced = !beside
}

// setLines sets both fields, in memory of the request.
func (req *request) setLines(header http.Header, policy, state string) {
	req.lines[0][0], req.lines[1][0] = policy, state
	header[fieldPolicy], header[fieldRateLimit] = req.lines[0][:], req.lines[1][:]
}

// announcedBefore returns what an earlier handler decided on the same request, if the
// fields hold what it wrote and nothing else.
func (req *request) announcedBefore(header http.Header) *request {
	before, _ := req.vars[requestVar].(*request)
	if before == nil || !before.announced {
		return nil
	}
	policy, state := header[fieldPolicy], header[fieldRateLimit]
	if len(policy) != 1 || len(state) != 1 || &policy[0] != &before.lines[0][0] || &state[0] != &before.lines[1][0] {
		return nil
	}
	return before
}

// item is a limit with what was decided on it.
type item struct {
	limitFields
	decision *window.Decision
}

// appendState appends the item of RateLimit.
func (f *limitFields) appendState(line []byte, d *window.Decision) []byte {
	return appendItem(line, f.name, 'r', d.Remaining, 't', seconds(d.EffectiveWindow))
}

// appendTightest appends what the handlers up to this one announced.
func (req *request) appendTightest(items []item) []item {
	if req.previous != nil {
		items = req.previous.appendTightest(items)
	}
	if !req.announced {
		return items
	}
	return req.appendOwn(items)
}

// appendOwn appends the limits of the request. If there are more items than
// mostAnnounced, the tightest are kept, in their order.
func (req *request) appendOwn(items []item) []item {
	for i := range req.charges {
		fields, ds := req.policyFields(i), req.decisionsOf(i)
		for j := range ds {
			if len(items) == mostAnnounced {
				loosest := len(items) - 1
				for k := range items {
					if tighter(items[loosest].decision, items[k].decision) {
						loosest = k
					}
				}
				if !tighter(&ds[j], items[loosest].decision) {
					continue
				}
				items = append(items[:loosest], items[loosest+1:]...)
			}
			items = append(items, item{fields.limits[j], &ds[j]})
		}
	}
	return items
}
