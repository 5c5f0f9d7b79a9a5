package redis

import (
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// What the script answers to one of several requests that failed.
const (
	undone    = -1 // it is as if it had not come
	forbidden = -3 // a command is not allowed; it may have been charged
)

var (
	errUndone  = errors.New("the script failed on this request")
	errUnknown = errors.New("the script failed on this request, after it may have charged it")
	// NOPERM is what servers say themselves.
	errForbidden = fmt.Errorf("NOPERM in a script: %w", errUnknown)
)

// answer writes a result per request of the call. errUndone is that of a request
// that may be asked again.
func (c *call) answer(results []window.Result) {
	err := c.err
	if err == nil && c.native {
		results[0].Decisions, err = c.nativeDecision()
	} else if err == nil {
		err = c.read(results)
	}
	if err != nil {
		for i := range results {
			results[i] = window.Result{Err: err}
		}
	}
}

// read reads the reply of the script.
func (c *call) read(results []window.Result) error {
	policies := 0
	for _, charges := range c.requests {
		policies += window.CountPolicies(charges)
	}
	ds := make([]window.Decision, 0, policies) // of all requests
	if len(c.reply) == 0 {
		return c.unexpected()
	}
	at, rest := c.reply[0], c.reply[1:]
	for i, charges := range c.requests {
		if len(rest) > 0 && len(c.requests) > 1 && rest[0] < 0 {
			results[i] = window.Result{Err: errUnknown}
			switch rest[0] {
			case undone:
				results[i].Err = errUndone
			case forbidden:
				results[i].Err = errForbidden
			}
			rest = rest[1:]
			continue
		}
		first := len(ds)
		for k := range c.namings {
			own := ds[first:]
			for j := range charges {
				for _, p := range charges[j].Policies {
					if len(rest) < 5 {
						return c.unexpected()
					}
					d, ok := decision(window.AtOnce(charges[j].Algorithm, p), at, rest)
					if !ok {
						return fmt.Errorf("unexpected reply of the script: %d is no decision", rest[:5])
					}
					rest = rest[5:]
					if k == 0 {
						ds = append(ds, d)
					} else {
						tighten(&own[0], &d)
						own = own[1:]
					}
				}
			}
		}
		results[i] = window.Result{Decisions: ds[first:len(ds):len(ds)]}
	}
	if len(rest) > 0 {
		return c.unexpected()
	}
	return nil
}

func (c *call) unexpected() error {
	return fmt.Errorf("unexpected reply of the script: %d integers do not answer %d requests", len(c.reply), len(c.requests))
}

// tighten makes d what holds if both d and other have to.
func tighten(d, other *window.Decision) {
	switch {
	case other.Remaining < d.Remaining:
		d.EffectiveWindow = other.EffectiveWindow
	case other.Remaining == d.Remaining:
		d.EffectiveWindow = max(d.EffectiveWindow, other.EffectiveWindow)
	}
	d.Allowed = d.Allowed && other.Allowed
	d.Remaining = min(d.Remaining, other.Remaining)
	d.RetryAfter = max(d.RetryAfter, other.RetryAfter)
	d.ResetAfter = max(d.ResetAfter, other.ResetAfter)
}

// decision reads the five numbers on one policy. It reports whether they make sense.
func decision(limit, at int64, n []int64) (d window.Decision, ok bool) {
	if n[0] != 0 && n[0] != 1 || n[1] < 0 || n[1] > limit || n[2] < -1 || n[3] < 0 || n[4] < 0 {
		return d, false
	}
	d = window.Decision{
		Allowed:         n[0] == 1,
		Limit:           limit,
		Remaining:       n[1],
		RetryAfter:      times(n[2], time.Millisecond),
		ResetAfter:      times(n[3], time.Millisecond),
		EffectiveWindow: times(n[4], time.Millisecond),
		At:              at,
	}
	if n[2] < 0 {
		d.RetryAfter = window.Never
	}
	return d, true
}

// times returns n units of time, but no more than a time.Duration can hold.
func times(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(n, int64(window.Never/unit))) * unit
}
