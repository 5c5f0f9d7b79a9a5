package wire

import (
	"fmt"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
)

// Reply codes: first numbers of the script's answer to a request, if that is not the number of remaining
// units; see the header of lua/driver.lua.
const (
	undone    = -1
	uncertain = -2
	forbidden = -3
	withTimes = -4
	inFull    = -5
)

// Answer writes a result per request of the call. failure.ErrUndone is that of a request
// that may be asked again.
func (c *Call) Answer(results []window.Result) {
	err := c.Err
	if err == nil && c.Native {
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
func (c *Call) read(results []window.Result) error {
	if len(c.Reply) == 0 {
		return c.unexpected()
	}
	policies := 0
	for _, charges := range c.Requests {
		policies += engine.CountPolicies(charges)
	}
	c.decisions = slices.Grow(c.decisions[:0], policies)
	a := answers{at: c.Reply[0], rest: c.Reply[1:], ds: c.decisions}
	for i, charges := range c.Requests {
		if len(a.rest) == 0 {
			return c.unexpected()
		}
		results[i] = window.Result{}
		first, begin, ok := len(a.ds), a.rest[0], true
		if begin < 0 {
			a.rest = a.rest[1:]
		}
		switch {
		case begin == inFull:
			ok = a.full(charges, c.Names)
		case begin == withTimes || begin >= 0:
			ok = a.short(charges, c.Names, begin == withTimes)
		case len(c.Requests) == 1: // its error is that of the call
			ok = false
		case begin == undone:
			results[i].Err = failure.ErrUndone
		case begin == uncertain:
			results[i].Err = failure.ErrUncertain
		case begin == forbidden:
			results[i].Err = failure.ErrForbidden
		default:
			ok = false
		}
		if !ok {
			return failure.OwnError("unexpected reply of the script: its numbers are no decision")
		}
		if results[i].Err == nil {
			results[i].Decisions = a.ds[first:len(a.ds):len(a.ds)]
		}
	}
	if len(a.rest) > 0 {
		return c.unexpected()
	}
	return nil
}

// answers are read one after the other.
type answers struct {
	at   int64             // ms
	rest []int64           // of the reply
	ds   []window.Decision // of all requests
}

// short reads the reply to an admitted request for a unit of one policy. It reports whether the reply has that form.
func (a *answers) short(charges []window.Charge, namings []naming.Naming, withTimes bool) bool {
	if len(charges) != 1 || len(charges[0].Policies) != 1 || len(namings) != 1 {
		return false
	}
	p := charges[0].Policies[0]
	ms := p.Window.Milliseconds()
	n, numbers := [5]int64{1, 0, 0, ms, ms}, 1
	if withTimes {
		numbers = 3
	}
	if len(a.rest) < numbers {
		return false
	}
	n[1] = a.rest[0]
	if withTimes {
		n[3], n[4] = a.rest[1], a.rest[2]
	}
	a.rest = a.rest[numbers:]
	d, ok := decision(p.AtOnce(charges[0].Algorithm), a.at, n[:])
	a.ds = append(a.ds, d)
	return ok
}

// full reads the reply to a request with any number of policies, one block per name. It reports whether the reply is well formed.
func (a *answers) full(charges []window.Charge, namings []naming.Naming) bool {
	first := len(a.ds)
	for k := range namings {
		own := a.ds[first:]
		for j := range charges {
			for _, p := range charges[j].Policies {
				if len(a.rest) < 5 {
					return false
				}
				d, ok := decision(p.AtOnce(charges[j].Algorithm), a.at, a.rest)
				if !ok {
					return false
				}
				a.rest = a.rest[5:]
				if k == 0 {
					a.ds = append(a.ds, d)
				} else {
					Tighten(&own[0], &d)
					own = own[1:]
				}
			}
		}
	}
	return true
}

func (c *Call) unexpected() error {
	return failure.OwnError(fmt.Sprintf("unexpected reply of the script: %d integers do not answer %d requests", len(c.Reply), len(c.Requests)))
}

// Verdict reads what the script says of settlement i: nil, failure.ErrUndone if nothing was changed
// under any name, or what the others are.
func (c *Call) Verdict(i int) error {
	names := len(c.Names)
	if len(c.Reply) != 1+names*len(c.Requests) {
		return c.unexpected()
	}
	done, failed := 0, 0
	var err error
	for _, code := range c.Reply[1+i*names:][:names] {
		switch code {
		case 0:
			done++
		case undone:
			failed++
		case forbidden:
			err = failure.ErrForbidden
		case uncertain:
			err = failure.ErrUncertain
		default:
			return fmt.Errorf("unexpected reply of the script: %d is no verdict on a settlement", code)
		}
	}
	switch {
	case done == names, err != nil:
		return err
	case failed == names:
		return failure.ErrUndone
	}
	return failure.ErrUncertain // done under one name only
}

// Tighten makes d what holds if both d and other have to.
func Tighten(d, other *window.Decision) {
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
