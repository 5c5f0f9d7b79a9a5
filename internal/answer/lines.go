package answer

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Item is a limit with what was decided on it.
type Item struct {
	Quota
	Decision *window.Decision
}

// Lines has room for the values of RateLimit-Policy and RateLimit, which the header of an answer refers to.
type Lines [2][1]string

// Set writes both fields for the limits of one zone, MostAnnounced at most, with a decision on each.
func (l *Lines) Set(header http.Header, quotas *Quotas, ds []window.Decision) {
	var room [FieldRoom]byte
	line := room[:0]
	for i := range ds {
		line = quotas.Limits[i].AppendState(line, &ds[i])
	}
	l.set(header, quotas.Policy, string(line))
}

// SetItems is Set for limits of several zones. With beside, they follow what the fields hold.
func (l *Lines) SetItems(header http.Header, items []Item, beside bool) {
	var policyRoom, stateRoom [2 * FieldRoom]byte
	policy, state := policyRoom[:0], stateRoom[:0]
	if beside {
		policy = append(policy, strings.Join(header[FieldPolicy], Separator)...)
		state = append(state, strings.Join(header[FieldRateLimit], Separator)...)
	}
	for i := range items {
		if len(policy) > 0 {
			policy = append(policy, Separator...)
		}
		policy = append(policy, items[i].Policy...)
		state = items[i].AppendState(state, items[i].Decision)
	}
	l.set(header, string(policy), string(state))
}

func (l *Lines) set(header http.Header, policy, state string) {
	l[0][0], l[1][0] = policy, state
	header[FieldPolicy], header[FieldRateLimit] = l[0][:], l[1][:]
}

// AreIn reports whether the fields hold what was set and nothing else.
func (l *Lines) AreIn(header http.Header) bool {
	policy, state := header[FieldPolicy], header[FieldRateLimit]
	return len(policy) == 1 && len(state) == 1 && &policy[0] == &l[0][0] && &state[0] == &l[1][0]
}

// IsAnnounced reports whether the header has one of the fields.
func IsAnnounced(header http.Header) bool {
	return header[FieldPolicy] != nil || header[FieldRateLimit] != nil
}

// AppendTightest appends the limits of a zone, with a decision on each. If there are more items than
// MostAnnounced, the tightest are kept, in their order.
func AppendTightest(items []Item, quotas *Quotas, ds []window.Decision) []Item {
	for j := range ds {
		if len(items) == MostAnnounced {
			loosest := len(items) - 1
			for k := range items {
				if Tighter(items[loosest].Decision, items[k].Decision) {
					loosest = k
				}
			}
			if !Tighter(&ds[j], items[loosest].Decision) {
				continue
			}
			items = append(items[:loosest], items[loosest+1:]...)
		}
		items = append(items, Item{quotas.Limits[j], &ds[j]})
	}
	return items
}

// Tightest returns the index of the denial with the longest wait or, without
// a denial, of the decision with the least remaining.
func Tightest(ds []window.Decision) int {
	best := 0
	for i := range ds {
		if Tighter(&ds[i], &ds[best]) {
			best = i
		}
	}
	return best
}

// Tighter reports whether a decision matters more to the client than another one.
func Tighter(a, b *window.Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case !a.Allowed:
		return a.RetryAfter > b.RetryAfter
	}
	return a.Remaining < b.Remaining
}

// SetLegacy writes X-RateLimit-Limit, -Remaining and -Reset. They name no window: X-RateLimit-Limit is what
// may pass at once. When a limit of requests at the same time has room again is not known: with held there is no -Reset.
func SetLegacy(header http.Header, d *window.Decision, held bool) {
	header["X-Ratelimit-Limit"] = []string{strconv.FormatInt(d.Limit, 10)}
	header["X-Ratelimit-Remaining"] = []string{strconv.FormatInt(d.Remaining, 10)}
	if held {
		delete(header, "X-Ratelimit-Reset")
		return
	}
	header["X-Ratelimit-Reset"] = []string{strconv.FormatInt(Seconds(d.ResetAfter), 10)}
}
