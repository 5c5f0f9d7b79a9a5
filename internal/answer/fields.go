// Package answer writes what clients are told: the fields RateLimit and RateLimit-Policy, and the body of a
// denial.
package answer

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Names of the fields as Go writes them; names do not depend on case.
const (
	FieldRateLimit = "Ratelimit"
	FieldPolicy    = "Ratelimit-Policy"
)

// MostAnnounced is how many limits the fields of a response hold. Clients and proxies
// refuse headers that are too long.
const MostAnnounced = 10

// Quotas is what RateLimit fields say of a zone's limits.
type Quotas struct {
	Limits []Quota // one per policy
	Policy string  // the value of RateLimit-Policy for all of them
}

// Quota is what RateLimit fields say of one limit.
type Quota struct {
	Name   string
	Policy string // its item of RateLimit-Policy
	held   bool   // see NewConcurrentQuotas
}

// NewQuotas names each policy: as the zone, if it has one limit, else with
// the length of its window, as in `api:1s` and `api:1h`.
func NewQuotas(zone string, policies []window.Policy) *Quotas {
	f := &Quotas{Limits: make([]Quota, len(policies))}
	var room [FieldRoom]byte
	line := room[:0]
	var endRoom [MostAnnounced]int
	ends := endRoom[:0]
	for i, p := range policies {
		name := zone
		if len(policies) > 1 {
			name += ":" + normalize.Duration(p.Window)
		}
		f.Limits[i].Name = name
		quota, length := Announced(p)
		line = appendItem(line, name, 'q', quota, 'w', length)
		ends = append(ends, len(line))
	}
	f.Policy = string(line)
	start := 0
	for i, end := range ends {
		f.Limits[i].Policy = f.Policy[start:end]
		start = end + len(Separator)
	}
	return f
}

// NewConcurrentQuotas returns what RateLimit fields say of limits of requests at the same time. Such a limit has no window.
func NewConcurrentQuotas(name string, policies []window.Policy) *Quotas {
	f := new(Quotas)
	for _, p := range policies {
		policy := string(appendItem(nil, name, 'q', p.Limit, 0, 0)) + `;qu="concurrent-requests"`
		f.Limits, f.Policy = append(f.Limits, Quota{name, policy, true}), policy
	}
	return f
}

// Announced returns a quota and a number of seconds that say the same as the policy.
// RateLimit-Policy counts whole seconds: 2 in 100ms are announced as 20 in 1 s, and 2 in
// 1500ms as 4 in 3 s. The same limit holds in both: in a whole number of windows, no more
// passes than the sum of their limits.
func Announced(p window.Policy) (quota, length int64) {
	milliseconds := int64(p.Window / time.Millisecond)
	times := 1000 / commonDivisor(1000, milliseconds)
	if p.Limit > MaxSFInteger/times {
		return MaxSFInteger, Seconds(p.Window * time.Duration(times))
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

// FieldRoom is enough for the value of most fields, in bytes.
const FieldRoom = 192

// MaxSFInteger is the largest integer of a structured field (RFC 9651).
const MaxSFInteger = 999_999_999_999_999

// Separator is between the items of a list of structured fields.
const Separator = ", "

// appendItem appends an item to a list of structured fields: a name, which holds
// nothing that has to be escaped, and two parameters, or one if param2 is 0.
func appendItem(line []byte, name string, param1 byte, value1 int64, param2 byte, value2 int64) []byte {
	if len(line) > 0 {
		line = append(line, Separator...)
	}
	line = append(line, '"')
	line = append(line, name...)
	line = append(line, '"', ';', param1, '=')
	line = strconv.AppendInt(line, min(value1, MaxSFInteger), 10)
	if param2 == 0 {
		return line
	}
	line = append(line, ';', param2, '=')
	return strconv.AppendInt(line, min(value2, MaxSFInteger), 10)
}

// AppendState appends the item of RateLimit.
func (f *Quota) AppendState(line []byte, d *window.Decision) []byte {
	if f.held {
		return appendItem(line, f.Name, 'r', d.Remaining, 0, 0)
	}
	return appendItem(line, f.Name, 'r', d.Remaining, 't', Seconds(d.EffectiveWindow))
}

// Seconds rounds up to whole seconds.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// RetryAfter returns the value of Retry-After: whole seconds, rounded up, at
// least 1, later by a random share of up to jitter. It is 0 if waiting cannot
// help.
func RetryAfter(wait time.Duration, jitter float64) int64 {
	if wait == window.Never {
		return 0
	}
	extra := time.Duration(rand.Float64() * jitter * float64(wait)) //nolint:gosec // spreads load, keeps no secret
	return max(1, Seconds(wait+min(extra, window.Never-wait)))
}
