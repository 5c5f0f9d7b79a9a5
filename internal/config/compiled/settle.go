package compiled

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Settle says what requests reserve, and what their answers say that they cost. Nothing of it changes.
type Settle struct {
	Source             *usage.Source // nil: the field Header tells
	Header             string
	Strip              bool                       // whether clients do not see Header
	Tokens             bool                       // whether Source tells tokens
	Weights            usage.Weights              // of tokens
	RefundIf           *caddyhttp.ResponseMatcher // of answers that do not tell, and cost nothing; nil: of none
	Most               int64                      // that an answer may say
	OnMissing, OnAbort MissingPolicy
	Fields             *usage.Fields // that announce the cost; nil: Zone.Cost is reserved
	PerToken           int64         // bytes of the body; 0: they do not count
	ReserveMost        int64         // 0: the limits alone hold
}

// MissingPolicy is what a request costs whose answer does not tell.
type MissingPolicy struct {
	Kept  bool // what was reserved
	Units int64
}

// cost returns what a request costs that has reserved units, and whose answer has told some by then.
func (u MissingPolicy) cost(reserved, told int64) int64 {
	if u.Kept {
		return max(reserved, told)
	}
	return max(u.Units, told)
}

// CostOf returns the units that an answer costs, and why it does not tell them, if so.
func (s *Settle) CostOf(reserved int64, result usage.Result, status int, header http.Header) (int64, usage.Reason) {
	told := min(s.Weights.Units(result), s.Most)
	switch {
	case result.Missing == "":
		return told, ""
	case result.Missing == usage.Aborted:
		return s.OnAbort.cost(reserved, told), result.Missing
	case s.RefundIf != nil && s.RefundIf.Match(status, header):
		return told, result.Missing
	}
	return s.OnMissing.cost(reserved, told), result.Missing
}

// FromHeader returns what a header tells.
func (s *Settle) FromHeader(header http.Header) usage.Result {
	n, err := strconv.ParseInt(strings.TrimSpace(header.Get(s.Header)), 10, 64)
	if errors.Is(err, strconv.ErrRange) && n > 0 {
		err = nil
	}
	if err != nil || n < 0 {
		return usage.Result{Missing: usage.NoUsage}
	}
	return usage.Result{Input: min(n, usage.MaxCount)}
}

// Reserve makes a charge spend what the answer is thought to cost, at most what is given. start is nil for a body
// that was not read.
func (s *Settle) Reserve(r *http.Request, start *usage.Start, c *window.Charge, most int64) {
	if s.Fields != nil && start != nil {
		c.Cost = s.estimate(s.Fields.Estimate(r, start), c.Cost)
	}
	if s.ReserveMost > 0 {
		most = min(most, s.ReserveMost)
	}
	c.Cost = max(1, min(c.Cost, most))
}

// estimate returns what an answer may cost at most by the body of its request. Where that does not say it for
// sure, it is otherwise at least, for each of the answers that are asked for.
func (s *Settle) estimate(e usage.Estimate, otherwise int64) int64 {
	result := usage.Result{Output: e.Output}
	if !s.Tokens {
		result = usage.Result{Input: e.Output}
	}
	if s.PerToken > 0 {
		result.Input = (e.Size + s.PerToken - 1) / s.PerToken
	}
	units := s.Weights.Units(result)
	if e.Sure {
		return units
	}
	return max(units, min(otherwise, usage.MaxCount/e.Times)*e.Times)
}
