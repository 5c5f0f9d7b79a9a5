package request

import (
	"net/http"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// setFields tells the client what is left, in the fields of
// draft-ietf-httpapi-ratelimit-headers-11, in the legacy X-RateLimit fields, or in both.
func (h *Handler) setFields(header http.Header, req *request) {
	if h.IETF {
		req.announce(header)
	}
	if h.Legacy {
		tightest := answer.Tightest(req.decisions)
		i, _ := req.chargeWith(tightest, 0)
		answer.SetLegacy(header, &req.decisions[tightest], req.zones[i].Held)
	}
	h.setAPIFields(header, req)
}

// setAPIFields tells a client of the API what is left of the tightest limit of requests, and of that of tokens: of all
// that the handlers up to now decided on the request.
func (h *Handler) setAPIFields(header http.Header, req *request) {
	if h.API == nil || !h.IETF && !h.Legacy {
		return
	}
	var tightest [answer.Tokens + 1]*window.Decision
	req.tighten(tightest[:])
	last, _ := req.vars[requestVar].(*request)
	for ; last != nil; last = last.previous {
		last.tighten(tightest[:])
	}
	for units, d := range tightest {
		if d != nil {
			h.API.SetState(header, answer.Units(units), d)
		}
	}
}

// announce writes the lines of RateLimit-Policy and RateLimit: one each, with the
// tightest limits of the response, at most answer.MostAnnounced of them.
func (req *request) announce(header http.Header) {
	if len(req.charges) > 1 || len(req.charges[0].Policies) > answer.MostAnnounced || answer.IsAnnounced(header) {
		req.announceSeveral(header)
		return
	}
	req.lines.Set(header, req.quotas(0), req.decisionsOf(0))
	req.announced = true
}

// announceSeveral is announce for several zones, or beside what is in the fields.
func (req *request) announceSeveral(header http.Header) {
	var room [answer.MostAnnounced]answer.Item
	items := room[:0]
	before, beside := req.announcedBefore(header), false
	if before != nil {
		items = before.appendTightest(items)
	} else {
		beside = answer.IsAnnounced(header)
	}
	req.lines.SetItems(header, req.appendOwn(items), beside)
	req.announced = !beside
}

// announcedBefore returns what an earlier handler decided on the same request, if the
// fields hold what it wrote and nothing else.
func (req *request) announcedBefore(header http.Header) *request {
	before, _ := req.vars[requestVar].(*request)
	if before == nil || !before.announced || !before.lines.AreIn(header) {
		return nil
	}
	return before
}

// appendTightest appends what the handlers up to this one announced.
func (req *request) appendTightest(items []answer.Item) []answer.Item {
	if req.previous != nil {
		items = req.previous.appendTightest(items)
	}
	if !req.announced {
		return items
	}
	return req.appendOwn(items)
}

// appendOwn appends the limits of the request, the tightest of all.
func (req *request) appendOwn(items []answer.Item) []answer.Item {
	for i := range req.charges {
		items = answer.AppendTightest(items, req.quotas(i), req.decisionsOf(i))
	}
	return items
}

// unitsOf returns what the zone counts: tokens, if answers tell what they cost.
func unitsOf(z *zone.Live) answer.Units {
	if z.Settle != nil {
		return answer.Tokens
	}
	return answer.Requests
}

// tighten puts the decisions of the request in the place of those that are less tight, by units.
func (req *request) tighten(tightest []*window.Decision) {
	if len(req.decisions) == 0 {
		return
	}
	for i, z := range req.zones {
		if z.Held {
			continue // these APIs have no fields for it
		}
		ds, best := req.decisionsOf(i), &tightest[unitsOf(z)]
		if d := &ds[answer.Tightest(ds)]; *best == nil || answer.Tighter(d, *best) {
			*best = d
		}
	}
}

// count counts what was decided. A zone that would have let a request pass which
// another one denied is not counted: nothing was spent on it.
func (req *request) count() {
	req.noteTop()
	if z := req.deniedBy; z != nil {
		z.Counters.Denied.Count(z.Cost)
		z.Recorder.Keyless()
		if !req.lacksKey() {
			z.Recorder.Refused(req.overridden.key)
		}
		if req.ban() != nil {
			z.Counters.Banned.Inc()
		}
		return
	}
	for i, z := range req.zones {
		if z.Tier != "" {
			continue // of the zone before
		}
		ds := req.decisionsFrom(i)
		switch {
		case req.allowed:
			z.Counters.Allowed.Count(req.charges[i].Cost)
			z.Recorder.Passed(ds)
		case !window.Allowed(ds):
			z.Counters.Denied.Count(req.charges[i].Cost)
			z.Recorder.Denied(req.denierFrom(i), ds)
		}
	}
}

// noteTop counts the request for the top talkers of its zones. Zones that settle count what a request
// has cost when that is known.
func (req *request) noteTop() {
	if req.deniedBy != nil {
		key := "" // or that of an override or a ban
		if req.overridden != nil {
			key = req.overridden.key
		}
		req.deniedBy.Top.Denied(key)
		return
	}
	for i, z := range req.zones {
		switch {
		case z.Top == nil:
		case !req.allowed && !window.Allowed(req.ownDecisions(i)):
			z.Top.Denied(req.charges[i].Key)
		case req.allowed && !z.Settles():
			z.Top.Charged(req.charges[i].Key, req.charges[i].Cost)
		}
	}
}
