// Package compiled holds zones as requests use them: what a configuration says of a zone is parsed once, when it is checked.
package compiled

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/alert"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// The words for what happens to an empty key.
const (
	EmptyShared = "shared"
	EmptySkip   = "skip"
	EmptyDeny   = "deny"
)

// Settings are those of a checked zone. They do not change.
type Settings struct {
	Configured   control.ZoneInfo   // as operators see it, without what its handler says
	Placeholders []placeholders.Use // of all options

	Name           string
	Key            template.Key
	EmptyKey       string // empty: as EmptyShared, and the log warns
	EmptyKeyStatus int    // 0: that of the handler
	Algorithm      window.Algorithm
	Native         window.GCRA // what the server of a store may decide with; NativeOff for nothing
	Limits         []LimitTemplate
	Policies       []window.Policy // the Limits; nil if one is dynamic
	Quotas         *answer.Quotas  // nil if one is dynamic
	Fallback       window.Policy   // the zero Policy without one
	Longest        time.Duration   // of the windows that are known without a request
	Pack           int64           // 0: not packed
	Cost           int64           // 1 if Spends is dynamic
	Spends         template.Text
	Lease          window.Lease
	Percent        int64            // of keys that are denied
	Notes          *template.Fields // nil: nothing is noted of requests
	Alerting       *alert.Rule      // nil: no alert
	Scaling        *load.Options    // nil: limits do not follow the load
	Ban            *Ban             // nil: there are no bans

	Concurrent  *Settings // the limit of requests at the same time beside others; nil: not configured, or the zone has no other
	Held        bool      // the limit is one of requests at the same time
	UntilStatus bool      // which counts them until their answers begin, not until they end

	Tier     string            // see LimitTemplate, or besideLimits; empty: the zone itself
	Networks template.Prefixes // of the tier
	Tiers    []*Settings       // of the zone, from narrow networks to wide ones

	Receipts string // the option by which answers say what requests cost: count_if or settle; empty: they do not
	CountIf  *caddyhttp.ResponseMatcher
	Settle   *Settle
}

// Ban says who is banned, and what a ban does to requests. But for Except, which is set before any comes, nothing of it changes.
type Ban struct {
	Rule   bans.Rule
	Status int  // 0: that of the handler
	Silent bool // clients hear neither of the ban nor of its end
	Except caddyhttp.MatcherSets
}

// Spares reports whether no ban denies a request, and its denial leads to none.
func (b *Ban) Spares(r *http.Request) (bool, error) {
	if len(b.Except) == 0 {
		return false, nil
	}
	return b.Except.AnyMatchWithError(r)
}

// Settles reports whether charges of the zone are settled by the answers to their requests.
func (z *Settings) Settles() bool { return z.Receipts != "" }

// Estimates reports whether the zone reserves what bodies say.
func (z *Settings) Estimates() bool { return z.Settle != nil && z.Settle.Fields != nil }

// CheckEnforce returns the percentage of keys that a word enforces, or why the zone cannot be enforced so.
func (z *Settings) CheckEnforce(word string) (percent int64, err error) {
	if percent, err = enforce.Percent(word); err != nil {
		return 0, err
	}
	part := percent > enforce.None && percent < enforce.All
	if part && z.Key.Placeholders == 0 {
		return 0, fmt.Errorf("enforce %s: the key has no placeholder, so that all requests would be in or out together; write on or shadow", word)
	}
	if part && z.Tiers != nil {
		return 0, fmt.Errorf("enforce %s and tier cannot be combined, for a network would be counted in two halves; write on or shadow", word)
	}
	if percent != enforce.All && percent != enforce.Mark && z.Settles() {
		return 0, fmt.Errorf("enforce %s and %s cannot be combined, for units counted beside the handlers are not given back; write on or mark, or take out %s", word, z.Receipts, z.Receipts)
	}
	return percent, nil
}

// CheckNative returns why no server can decide by itself on the zone; nil if one can.
func (z *Settings) CheckNative() error {
	switch {
	case z.Pack != 0:
		return errors.New("the zone has pack, and CL.THROTTLE packs nothing")
	case len(z.Limits) > 1 || z.Tiers != nil || z.Concurrent != nil:
		return errors.New("there is more than one limit")
	case len(z.Limits) == 0:
		return nil // of the limit
	}
	if l := &z.Limits[0]; l.Dynamic() {
		return fmt.Errorf("limit %s %s holds a placeholder", l.max.String(), l.window.String())
	}
	return window.CheckPolicy(z.Native, z.Limits[0].Known)
}

// LimitTemplate is a limit of which a part may be known only once a request comes.
type LimitTemplate struct {
	max, window template.Text
	Known       window.Policy // with something valid for placeholders
	Tier        string        // of the network that the limit counts, such as 24/48; empty: it counts the key
}

// NewLimitTemplate returns a limit of which texts tell the parts that are dynamic.
func NewLimitTemplate(most, length string, known window.Policy) LimitTemplate {
	return LimitTemplate{max: template.NewText(most), window: template.NewText(length), Known: known}
}

// Dynamic reports whether a part of the limit is known only once a request comes.
func (l *LimitTemplate) Dynamic() bool { return l.max.Dynamic || l.window.Dynamic }

// DynamicWindow reports whether the window is known only once a request comes.
func (l *LimitTemplate) DynamicWindow() bool { return l.window.Dynamic }

// DynamicMax reports whether the number of units is known only once a request comes.
func (l *LimitTemplate) DynamicMax() bool { return l.max.Dynamic }

// expand returns the limit for one request. It is an error if the placeholders do not give a valid one.
func (l *LimitTemplate) expand(repl *caddy.Replacer) (window.Policy, error) {
	p := l.Known
	var err error
	if l.max.Dynamic {
		if p.Limit, err = quantity.Int(l.max.Expand(repl)); err != nil {
			return p, err
		}
	}
	if l.window.Dynamic {
		if p.Window, err = quantity.Duration(l.window.Expand(repl)); err != nil {
			return p, err
		}
	}
	return p, p.Check()
}

// Needs reports whether a part of the limit has no value without a request, for which repl has none.
func (l *LimitTemplate) Needs(repl *caddy.Replacer) bool {
	return l.max.Needs(repl) || l.window.Needs(repl)
}

// WindowWithout returns the window of the limit without a request; 0 if only one tells it.
func (l LimitTemplate) WindowWithout(repl *caddy.Replacer) time.Duration {
	l.max.Dynamic = false
	p, err := l.expand(repl)
	if err != nil || l.window.Needs(repl) {
		return 0
	}
	return p.Window
}

// ExpandLimits returns limits for one request, and which options came out empty. Of two that come out with the same window
// the smaller one holds both.
func (z *Settings) ExpandLimits(limits []LimitTemplate, repl *caddy.Replacer) (policies []window.Policy, empty placeholders.EmptyOptions) {
	policies = make([]window.Policy, 0, len(limits))
	for i := range limits {
		p, err := limits[i].expand(repl)
		if limits[i].max.Empty(repl, err) || limits[i].window.Empty(repl, err) {
			empty = placeholders.NoLimit
		}
		if err != nil || window.CheckPolicy(z.Algorithm, p) != nil {
			p = z.Fallback
		}
		same := func(other window.Policy) bool { return other.Window == p.Window }
		if j := slices.IndexFunc(policies, same); j >= 0 {
			policies[j].Limit = min(policies[j].Limit, p.Limit)
		} else {
			policies = append(policies, p)
		}
	}
	return policies, empty
}

// tooCostly is a cost that no limit lets pass, and that is only compared.
const tooCostly = math.MaxInt64

// ExpandCost returns the cost of one request, and whether it came out empty.
func (z *Settings) ExpandCost(repl *caddy.Replacer) (cost int64, empty bool) {
	n, err := quantity.Int(z.Spends.Expand(repl))
	empty = z.Spends.Empty(repl, err)
	switch {
	case errors.Is(err, quantity.ErrTooLarge):
		return tooCostly, empty
	case err != nil || n < 0:
		return z.Cost, empty
	}
	return n, empty
}

// Scale returns limits times the factor of an override, if they can hold in the zone.
func (z *Settings) Scale(policies []window.Policy, factor float64) ([]window.Policy, error) {
	scaled := slices.Clone(policies)
	for i := range scaled {
		var err error
		if scaled[i].Limit, err = overrides.Scale(scaled[i].Limit, factor); err != nil {
			return nil, err
		}
	}
	return scaled, z.Fits(scaled)
}

// Fits reports why limits cannot hold in the zone.
func (z *Settings) Fits(policies []window.Policy) error {
	for _, p := range policies {
		if err := p.Check(); err != nil {
			return err
		}
		if err := window.CheckPolicy(z.Algorithm, p); err != nil {
			return err
		}
	}
	return window.CheckPack(z.Algorithm, len(policies), z.Pack)
}

// SmallestLimit returns the smallest limit that the configuration tells, but for 0.
func (z *Settings) SmallestLimit() int64 {
	smallest := int64(math.MaxInt64)
	for _, p := range z.Policies {
		if p.Limit > 0 {
			smallest = min(smallest, p.Limit)
		}
	}
	for _, t := range z.Tiers {
		smallest = min(smallest, t.SmallestLimit())
	}
	return smallest
}

// PerSecond returns the lowest of the zone's limits, as units per second.
func (z *Settings) PerSecond() float64 {
	lowest := math.Inf(1)
	for _, p := range z.Policies {
		lowest = min(lowest, float64(p.Limit)/p.Window.Seconds())
	}
	if z.Policies == nil && z.Fallback.Window > 0 {
		lowest = float64(z.Fallback.Limit) / z.Fallback.Window.Seconds()
	}
	return lowest
}

// Engine returns what all charges of the zone have in common when an algorithm decides: its own, or that of a server. Charges
// have the fallback if a limit is dynamic.
func (z *Settings) Engine(name string, algorithm window.Algorithm) (*window.Zone, error) {
	policies, o := z.Policies, window.Options{Pack: z.Pack, Lease: z.Lease}
	if policies == nil {
		policies, o.Lookback = []window.Policy{z.Fallback}, z.Longest
	}
	return window.NewZone(name, algorithm, policies, o)
}
