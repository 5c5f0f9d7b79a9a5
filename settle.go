package slidingwindow

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

// Settle says where an answer tells what its request really cost. Exactly one of usage, header and
// json is required.
type Settle struct {
	// The API whose answers tell how many tokens they cost: `openai` or `anthropic`, as JSON and
	// as Server-Sent Events. Required without header and json.
	Usage string `json:"usage,omitempty"`

	// The header field of the answer that holds the units. Required without usage and json.
	Header string `json:"header,omitempty"`

	// With header: whether the field is stripped before the client sees it. Default: false.
	Strip bool `json:"strip,omitempty"`

	// The path of the number of units in answers that are JSON or Server-Sent Events, such as
	// `usage.total_tokens`. It begins with the name of a member; the last number counts.
	// Required without usage and header.
	JSON string `json:"json,omitempty"`

	// With usage: the units that a token costs. Default: each token costs one unit.
	Weight *Weight `json:"weight,omitempty"`

	// Members of the request's body that say how much the answer may cost at most, such as
	// `max_tokens`. The largest of them is reserved in the place of cost; with usage it counts
	// as tokens of output. The members `n` and `best_of`, and the texts of a list in `prompt`,
	// multiply it. Only the first 256 KiB of the body are read. A body that goes on, or in which
	// something is odd or missing, reserves cost at least. Default: cost is reserved.
	ReserveJSON []string `json:"reserve_json,omitempty"`

	// With usage and reserve_json: how many bytes of the request's body are reserved as one token
	// of input; 4 suits English text. Only the first 256 KiB count. Default: input is not reserved.
	ReserveBody Value `json:"reserve_body,omitempty"`

	// With reserve_json: the most that a request reserves. No request ever reserves more than the
	// smallest limit of all zones of the directive that settle. Default: no other maximum.
	ReserveMax Value `json:"reserve_max,omitempty"`

	// What a request costs whose answer does not tell: `keep` what was reserved, `refund` it, or
	// a number of units. Default: `keep`.
	OnMissing Value `json:"on_missing,omitempty"`

	// What a request costs whose answer ended before it told, because the client hung up or the
	// back end failed: as for on_missing. It never costs less than the answer had told by then.
	// Default: `keep`.
	OnAbort Value `json:"on_abort,omitempty"`

	// Answers that do not tell what they cost, and cost nothing. Status codes of one digit
	// stand for a class. Default: status 4xx and 5xx with usage, else none.
	RefundIf *caddyhttp.ResponseMatcher `json:"refund_if,omitempty"`

	// The most that an answer may say that it cost. Default: 1000000000000.
	Max Value `json:"max,omitempty"`
}

// Weight is the units that tokens cost. Three decimals count.
type Weight struct {
	// Units that a token of input costs. Default: 1.
	Input *float64 `json:"input,omitempty"`

	// Units that a token of input costs that was read from a cache. Default: as input.
	Cached *float64 `json:"cached,omitempty"`

	// Units that a token of output costs. Default: 1.
	Output *float64 `json:"output,omitempty"`
}

// The words for what a request costs that nothing tells.
const (
	missingKeep   = "keep"
	missingRefund = "refund"
)

// newMissingPolicy reads a value of on_missing or on_abort.
func newMissingPolicy(option string, v Value) (compiled.MissingPolicy, error) {
	switch v {
	case "", missingKeep:
		return compiled.MissingPolicy{Kept: true}, nil
	case missingRefund:
		return compiled.MissingPolicy{}, nil
	}
	n, err := v.int()
	if err != nil || n < 0 || n > usage.MaxCount {
		return compiled.MissingPolicy{}, fmt.Errorf("%s %q is unknown; use keep, refund, or a number of units from 0 to %d", option, string(v), int64(usage.MaxCount))
	}
	return compiled.MissingPolicy{Units: n}, nil
}

// compile returns s as requests use it, or what is wrong with it by itself.
func (s *Settle) compile() (*compiled.Settle, error) {
	c := &compiled.Settle{Header: s.Header, Strip: s.Strip, Tokens: s.Usage != "", RefundIf: s.RefundIf, Most: usage.MaxCount}
	if err := s.compileSource(c); err != nil {
		return nil, err
	}
	if err := s.compileWeight(c); err != nil {
		return nil, err
	}
	if err := s.compileReserve(c); err != nil {
		return nil, err
	}
	var err error
	if c.OnMissing, err = newMissingPolicy("on_missing", s.OnMissing); err != nil {
		return nil, err
	}
	if c.OnAbort, err = newMissingPolicy("on_abort", s.OnAbort); err != nil {
		return nil, err
	}
	switch {
	case s.RefundIf != nil:
		if err := checkMatcher("refund_if", s.RefundIf); err != nil {
			return nil, err
		}
	case s.Usage != "":
		c.RefundIf = failed
	}
	if s.Max != "" {
		if c.Most, err = s.Max.int(); err != nil {
			return nil, fmt.Errorf("max %w", err)
		}
	}
	if c.Most < 1 || c.Most > usage.MaxCount {
		return nil, fmt.Errorf("max %s: must be from 1 to %d", s.Max, int64(usage.MaxCount))
	}
	return c, nil
}

func (s *Settle) compileSource(c *compiled.Settle) (err error) {
	var sources []string
	for _, source := range [][2]string{{"usage", s.Usage}, {"header", s.Header}, {"json", s.JSON}} {
		if source[1] != "" {
			sources = append(sources, source[0])
		}
	}
	switch {
	case len(sources) == 0:
		return errors.New("nothing says where the cost is; write usage openai, usage anthropic, header <name> or json <path>")
	case len(sources) > 1:
		return fmt.Errorf("%s and %s cannot be combined; keep the one that tells the cost", sources[0], sources[1])
	case s.Strip && s.Header == "":
		return errors.New("strip removes the field of header, but no header is named; take out strip")
	}
	switch {
	case s.Header != "":
		if strings.ContainsFunc(s.Header, func(c rune) bool { return c <= ' ' || c >= 127 || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) }) {
			return fmt.Errorf("header %q is not the name of a header field", s.Header)
		}
	case s.JSON != "":
		c.Source, err = usage.Path(s.JSON)
	default:
		c.Source = usages[s.Usage]
		err = checkWord("usage", s.Usage, "openai", "anthropic")
	}
	return err
}

// usages are the sources of known APIs. Zones with the same one read an answer once.
var usages = map[string]*usage.Source{"openai": usage.OpenAI(), "anthropic": usage.Anthropic()}

func (s *Settle) compileWeight(c *compiled.Settle) error {
	c.Weights = s.Weight.units()
	if s.Weight == nil {
		return nil
	}
	if s.Usage == "" {
		return errors.New("weight is that of a token, and only usage tells tokens; take out weight")
	}
	if w := c.Weights; w.Input < 0.001 && w.Output < 0.001 && w.Input >= 0 && w.Output >= 0 {
		return errors.New("weight: with 0 for input and output, requests cost nothing; write weight input <units> output <units>")
	}
	return c.Weights.Check()
}

// units returns the weights, with the defaults.
func (w *Weight) units() usage.Weights {
	units := usage.Weights{Input: 1, Cached: 1, Output: 1}
	if w == nil {
		return units
	}
	if w.Input != nil {
		units.Input, units.Cached = *w.Input, *w.Input
	}
	if w.Cached != nil {
		units.Cached = *w.Cached
	}
	if w.Output != nil {
		units.Output = *w.Output
	}
	return units
}

func (s *Settle) compileReserve(c *compiled.Settle) (err error) {
	if s.ReserveJSON != nil {
		if c.Fields, err = usage.NewFields(s.ReserveJSON...); err != nil {
			return fmt.Errorf("reserve_json: %w", err)
		}
	}
	if err := s.compileReserveMax(c); err != nil || s.ReserveBody == "" {
		return err
	}
	if s.Usage == "" || c.Fields == nil {
		return fmt.Errorf("reserve_body %s adds tokens of input to what reserve_json reserves, with usage; write usage and reserve_json, or take out reserve_body", s.ReserveBody)
	}
	if c.PerToken, err = s.ReserveBody.int(); err != nil {
		return fmt.Errorf("reserve_body %w", err)
	}
	if c.PerToken < 1 || c.PerToken > usage.MaxBody {
		return fmt.Errorf("reserve_body %s: must be from 1 to %d bytes", s.ReserveBody, usage.MaxBody)
	}
	return nil
}

func (s *Settle) compileReserveMax(c *compiled.Settle) (err error) {
	switch {
	case s.ReserveMax == "":
		return nil
	case c.Fields == nil:
		return fmt.Errorf("reserve_max %s bounds what reserve_json reserves; write reserve_json, or take out reserve_max", s.ReserveMax)
	}
	if c.ReserveMost, err = s.ReserveMax.int(); err != nil {
		return fmt.Errorf("reserve_max %w", err)
	}
	if c.ReserveMost < 1 || c.ReserveMost > usage.MaxCount {
		return fmt.Errorf("reserve_max %s: must be from 1 to %d", s.ReserveMax, int64(usage.MaxCount))
	}
	return nil
}

// plain returns s with values written in one way and without those that are the default.
func (s *Settle) plain() *Settle {
	p := *s
	p.Header = http.CanonicalHeaderKey(p.Header)
	p.ReserveBody, p.ReserveMax, p.Max = p.ReserveBody.canonicalInt(), p.ReserveMax.canonicalInt(), p.Max.canonicalInt()
	p.Max = unless(p.Max, Value(strconv.FormatInt(usage.MaxCount, 10)))
	for _, v := range []*Value{&p.OnMissing, &p.OnAbort} {
		if *v = unless(v.canonicalInt(), missingKeep); *v == "0" {
			*v = missingRefund
		}
	}
	if p.Weight != nil {
		w := p.Weight.units()
		p.Weight = &Weight{&w.Input, &w.Cached, &w.Output}
		if w == (usage.Weights{Input: 1, Cached: 1, Output: 1}) {
			p.Weight = nil
		}
	}
	if m := p.RefundIf; m != nil && p.Usage != "" && len(m.Headers) == 0 && slices.Equal(m.StatusCode, failed.StatusCode) {
		p.RefundIf = nil
	}
	return &p
}

// failed matches answers that tell no cost: they are errors.
var failed = &caddyhttp.ResponseMatcher{StatusCode: []int{4, 5}}
