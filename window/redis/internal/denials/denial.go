package denials

import (
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// denialOverhead is what one takes besides its key and decisions, about, and
	// answerOverhead what each of the other charges does.
	denialOverhead = 280
	answerOverhead = 80
	// decisionBytes is the size of a window.Decision.
	decisionBytes = 56
	// policyBytes is the size of a window.Policy.
	policyBytes = 16
)

// denial is a remembered charge that was denied. It does not change.
type denial struct {
	answer
	others   []answer // to the other charges of the request
	asked    Moment
	answered time.Duration
	ends     time.Duration
	slot     uint16 // of the counter
}

// answer is what was decided on a charge.
type answer struct {
	key       string // see package fingerprint
	decisions []window.Decision
	policies  []window.Policy
}

// covers reports whether a denial under the limits of a holds under others with the same windows:
// what is above a limit is above every smaller one.
func (a *answer) covers(policies []window.Policy) bool {
	for i := range policies {
		if policies[i].Limit > a.policies[i].Limit {
			return false
		}
	}
	return true
}

// under returns a decision on a limit as it is under a smaller one. When there is room for that is not
// known: it is not later than when nothing is used any more.
func under(d window.Decision, was, is window.Policy, cost int64) window.Decision {
	if was.Limit == is.Limit {
		return d
	}
	d.Limit -= was.Limit - is.Limit
	d.Remaining = max(0, d.Remaining-(was.Limit-is.Limit))
	switch {
	case cost == 0 || d.Allowed && cost <= d.Remaining:
	case cost > d.Limit:
		d.Allowed, d.RetryAfter = false, window.Never
	default:
		d.Allowed, d.RetryAfter = false, max(d.RetryAfter, d.ResetAfter, time.Millisecond)
	}
	return d
}

func (one *denial) size() int {
	n := denialOverhead + one.answer.size()
	for i := range one.others {
		n += answerOverhead + one.others[i].size()
	}
	return n
}

func (a *answer) size() int { return len(a.key) + (decisionBytes+policyBytes)*len(a.decisions) }

// passed is how long ago the denial was heard of, in whole milliseconds.
func (one *denial) passed(now time.Duration) time.Duration {
	return max(0, now-one.answered).Truncate(time.Millisecond)
}

// appendTo appends the decisions on a charge that the denial covers.
func (one *denial) appendTo(ds []window.Decision, now time.Duration, c *window.Charge) []window.Decision {
	passed := one.passed(now)
	for i, d := range one.decisions {
		ds = append(ds, under(later(d, passed), one.policies[i], c.Policies[i], c.Cost))
	}
	return ds
}

// other appends decisions on a charge that is not known to be denied, of a request that one
// denies: those that were made together with the denial, or else those on a counter of which
// nothing is spent. The server was not asked, and nothing is charged. A limit that is not
// known to deny any more is taken to have room for the cost.
func (one *denial) other(ds []window.Decision, now time.Duration, c *window.Charge, key []byte) []window.Decision {
	passed := one.passed(now)
	for i := range one.others {
		if one.others[i].key != string(key) || !slices.Equal(one.others[i].policies, c.Policies) {
			continue
		}
		for _, d := range one.others[i].decisions {
			d = later(d, passed)
			if !d.Allowed && d.RetryAfter != window.Never {
				d.Allowed, d.RetryAfter, d.Remaining = true, 0, min(d.Limit, max(d.Remaining, c.Cost))
			}
			ds = append(ds, d)
		}
		return ds
	}
	first := len(ds)
	ds = append(ds, make([]window.Decision, len(c.Policies))...)
	at := later(one.decisions[0], passed).At
	window.History(nil).Look(at, c, ds[first:])
	window.History(nil).Explain(at, c, ds[first:], false)
	for i := range ds[first:] {
		d := &ds[first+i]
		d.At, d.Remaining = at, max(0, d.Remaining)
	}
	return ds
}

// later returns a decision as it looks after passed, a whole number of milliseconds. Times
// that were not 0 remain at least one millisecond.
func later(d window.Decision, passed time.Duration) window.Decision {
	for _, t := range []*time.Duration{&d.RetryAfter, &d.ResetAfter, &d.EffectiveWindow} {
		if *t > 0 && *t != window.Never {
			*t = max(time.Millisecond, *t-passed)
		}
	}
	if d.At > 0 {
		d.At += passed.Milliseconds()
	}
	return d
}
