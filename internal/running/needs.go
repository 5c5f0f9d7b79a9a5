package running

import (
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Needs is what of a charge only a request tells. The zero Needs is that of a charge of which all is known.
type Needs struct {
	Limits []NeededLimit
	// Looks is how many policies of the charge, the last ones, are no limits: they look into the windows of Limits.
	Looks int
	// Cost is the template of the cost, or [control.CostOfBody]. The charge then has the least that it may be.
	Cost string
}

// NeededLimit is a limit that only a request tells, as it is configured. Window is 0 if the length of its window is
// not known, or if the algorithm keeps no units by which to tell what is used.
type NeededLimit struct {
	control.LimitInfo
	Window time.Duration
}

// verdict reports whether a charge passes; nil if that is not known. ds are on the limits that are known.
func (n *Needs) verdict(ds []window.Decision) *bool {
	passes := window.Allowed(ds)
	if passes && (n.Limits != nil || n.Cost != "") {
		return nil
	}
	return &passes
}

// told returns what is said of n; nil if all is known. ds and used are on all policies of the charge.
func (n *Needs) told(policies []window.Policy, ds []window.Decision, used []int64) *control.NeedsRequest {
	if n.Limits == nil && n.Cost == "" {
		return nil
	}
	told := &control.NeedsRequest{Cost: n.Cost}
	for _, l := range n.Limits {
		limit := control.NeededLimit{LimitInfo: l.LimitInfo}
		for i := range ds {
			if l.Window > 0 && policies[i].Window == l.Window {
				resetAfter := ds[i].ResetAfter.Seconds()
				limit.Used, limit.ResetAfter = &used[i], &resetAfter
			}
		}
		told.Limits = append(told.Limits, limit)
	}
	return told
}

// costOf returns the cost of a charge; nil if it is not known.
func (n *Needs) costOf(c *window.Charge) *int64 {
	if n.Cost != "" {
		return nil
	}
	return &c.Cost
}
