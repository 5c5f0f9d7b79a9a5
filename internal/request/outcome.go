package request

import (
	"iter"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Outcome is what a zone decided on a request.
type Outcome struct {
	Zone *zone.Live
	Key  string
	Cost int64
	// One for each limit, those of tiers behind the others; empty if none was looked at, as where an override, a ban or the want of a key decides.
	Decisions []window.Decision
	Denied    bool
	// How long the ban lasts that denies; 0 without one.
	Left time.Duration
	// Whether the zone only counts the request, or marks it. Denied is then what it would have decided.
	Shadow bool
}

// Outcomes returns what zones have decided on the request with these variables: the last handler's zones first. A zone is
// left out if it does not count the request, if an override exempts the request, or if the store failed.
func Outcomes(vars map[string]any) iter.Seq[Outcome] {
	return func(yield func(Outcome) bool) {
		last, _ := vars[requestVar].(*request)
		for req := range last.each {
			if !req.outcomes(yield) {
				return
			}
		}
	}
}

// outcomes yields those of one handler. It reports false if yield wants no more.
func (req *request) outcomes(yield func(Outcome) bool) bool {
	if z := req.deniedBy; z != nil {
		o := Outcome{Zone: z, Denied: true, Shadow: req.isMark}
		if req.overridden != nil {
			o.Key = req.overridden.key
			if ban := req.ban(); ban != nil {
				o.Left = ban.Left
			}
		}
		if !yield(o) {
			return false
		}
	}
	for i, z := range req.zones {
		if len(req.decisions) == 0 {
			break
		}
		if z.Tier != "" {
			continue
		}
		ds := req.decisionsFrom(i)
		if !yield(Outcome{Zone: z, Key: req.charges[i].Key, Cost: req.charges[i].Cost, Decisions: ds, Denied: !window.Allowed(ds), Shadow: req.isMark}) {
			return false
		}
	}
	if req.shadows == nil {
		return true
	}
	for i := range *req.shadows {
		s := &(*req.shadows)[i]
		ds := s.decisions.Load()
		if !s.applies || !s.denied && ds == nil {
			continue
		}
		o := Outcome{Zone: s.zone.Live, Key: s.charge.Key, Cost: s.charge.Cost, Denied: s.denied, Shadow: true}
		if ds != nil {
			o.Decisions, o.Denied = *ds, !window.Allowed(*ds)
		}
		if !yield(o) {
			return false
		}
	}
	return true
}
