package slidingwindow

import (
	"net/http"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// The words for how the bodies of denials are written.
const (
	errorsProblem   = "problem"
	errorsOpenAI    = "openai"
	errorsAnthropic = "anthropic"
)

// apis are the APIs whose clients read the bodies.
var apis = map[string]*answer.API{errorsOpenAI: answer.OpenAI, errorsAnthropic: answer.Anthropic}

// units returns what the zone counts: tokens, if answers tell what they cost.
func (z *Zone) units() answer.Units {
	if z.Settle != nil {
		return answer.Tokens
	}
	return answer.Requests
}

// setAPIFields tells a client of the API what is left of the tightest limit of requests, and of that of tokens: of all
// that the handlers up to now decided on the request.
func (h *Handler) setAPIFields(header http.Header, req *request) {
	if h.api == nil || h.Headers == fieldsNone {
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
			h.api.SetState(header, answer.Units(units), d)
		}
	}
}

// tighten puts the decisions of the request in the place of those that are less tight, by units.
func (req *request) tighten(tightest []*window.Decision) {
	if len(req.decisions) == 0 {
		return
	}
	for i, z := range req.zones {
		ds, best := req.decisionsOf(i), &tightest[z.units()]
		if d := &ds[answer.Tightest(ds)]; *best == nil || answer.Tighter(d, *best) {
			*best = d
		}
	}
}

// deniedUnits returns what the zone counts that denies the request longest.
func (req *request) deniedUnits() answer.Units {
	if req.keyless != nil {
		return req.keyless.units()
	}
	name := req.tightestZone()
	for _, z := range req.zones {
		if z.Name == name {
			return z.units()
		}
	}
	return answer.Requests
}
