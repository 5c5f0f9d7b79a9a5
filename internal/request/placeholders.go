package request

import (
	"slices"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// publish makes the placeholders of the request available.
func (req *request) publish() {
	vars := req.vars
	if vars == nil {
		return
	}
	previous, _ := vars[requestVar].(*request)
	req.previous = previous
	vars[requestVar] = req
	if previous != nil {
		return
	}
	req.repl.Map(func(name string) (any, bool) {
		name, ok := strings.CutPrefix(name, "http.sliding_window.")
		if !ok {
			return nil, false
		}
		req, ok := vars[requestVar].(*request)
		if !ok {
			return nil, false
		}
		return req.placeholder(name)
	})
}

// placeholder returns the value of {http.sliding_window.<name>}. Without a zone
// in its name, the value is that of the tightest limit of the last handler.
func (req *request) placeholder(name string) (any, bool) {
	field, zone := name, ""
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		zone, field = name[:dot], name[dot+1:]
	}
	if zone == "" {
		switch field {
		case "allowed":
			return req.allowed, true
		case "zone":
			return req.tightestZone(), true
		case "retry_after":
			return req.retryAfter, true
		case "override":
			return req.override(), true
		}
		if len(req.decisions) == 0 {
			return decisionField(nil, field)
		}
		return decisionField(req.tightest(), field)
	}
	switch field {
	case "enforced":
		return req.enforced(zone), true
	case "source":
		return req.source(zone), true
	case "override":
		return req.overrideOf(zone), true
	}
	for req := range req.each {
		if req.ban() != nil && req.deniedBy.Name == zone {
			return req.bannedField(field)
		}
		for i := range req.charges {
			if req.charges[i].Zone == zone && len(req.decisions) > 0 {
				ds := req.decisionsFrom(i)
				return decisionField(&ds[answer.Tightest(ds)], field)
			}
		}
		if allowed, known := req.markOf(zone); known && field == "allowed" {
			return allowed, true
		}
		if s := req.shadowOf(zone); s != nil {
			return s.field(field)
		}
	}
	return decisionField(nil, field)
}

// enforced returns whether a zone that counts the request may deny it; empty if none of that name
// does.
func (req *request) enforced(zone string) any {
	for req := range req.each {
		if enforced, counts := req.enforcedHere(zone); counts {
			return enforced
		}
	}
	return ""
}

// enforcedHere reports whether a zone may have denied the request in this handler, and whether
// the zone counts it here.
func (req *request) enforcedHere(zone string) (enforced, counts bool) {
	if req.deniedBy != nil && req.deniedBy.Name == zone {
		return !req.isMark, true
	}
	for _, z := range req.zones {
		if z.Name == zone {
			return !req.isMark, true
		}
	}
	return false, req.shadowOf(zone) != nil
}

// source returns where the tightest limit of a zone comes from that counts the request, or what decides in
// place of one; empty if no zone of that name does.
func (req *request) source(zone string) any {
	for req := range req.each {
		if req.ban() != nil && req.deniedBy.Name == zone {
			return control.SourceBan
		}
		i := slices.IndexFunc(req.charges, func(c window.Charge) bool { return c.Zone == zone })
		if i >= 0 && len(req.decisions) > 0 {
			c, p := req.chargeWith(answer.Tightest(req.decisionsFrom(i)), i)
			if req.ruleIn(req.zones[c]) != nil {
				return control.SourceOverride
			}
			return req.zones[c].SourceOf(&req.charges[c], req.charges[c].Policies[p])
		}
		if req.ruleHere(zone) != nil {
			return control.SourceOverride
		}
		if i >= 0 {
			return control.SourceAway
		}
		if req.deniedBy != nil && req.deniedBy.Name == zone || req.shadowOf(zone) != nil {
			return control.SourceConfig
		}
	}
	return ""
}

// overrideOf returns the ID of the override of the request in a zone; empty without one.
func (req *request) overrideOf(zone string) any {
	for req := range req.each {
		if rule := req.ruleHere(zone); rule != nil {
			return rule.ID
		}
	}
	return ""
}

// override returns the ID of the override that decided in the zone with the tightest limit, or of the
// first one if all zones are exempt; empty without one.
func (req *request) override() any {
	zone := req.tightestZone()
	if zone == "" && req.overridden != nil {
		zone = req.overridden.rules[0].zone.Name
	}
	if rule := req.ruleHere(zone); rule != nil {
		return rule.ID
	}
	return ""
}

// field returns a field of what the zone would have decided, empty until that is known.
func (s *shadowed) field(name string) (any, bool) {
	if s.denied && name == "allowed" {
		return false, true
	}
	ds := s.decisions.Load()
	if ds == nil {
		return decisionField(nil, name)
	}
	return decisionField(&(*ds)[answer.Tightest(*ds)], name)
}

// decisionField returns a field of a decision, empty if d is nil: nothing was
// decided.
func decisionField(d *window.Decision, field string) (any, bool) {
	if d == nil {
		return "", slices.Contains(decisionFields, field)
	}
	switch field {
	case "allowed":
		return d.Allowed, true
	case "limit":
		return d.Limit, true
	case "remaining":
		return d.Remaining, true
	case "retry_after":
		if d.RetryAfter == window.Never {
			return 0, true
		}
		return answer.Seconds(d.RetryAfter), true
	case "reset_after":
		return answer.Seconds(d.ResetAfter), true
	}
	return nil, false
}

var decisionFields = []string{"allowed", "limit", "remaining", "retry_after", "reset_after"}
