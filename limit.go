package slidingwindow

import (
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Limit is a number of units that may be spent in any window of a length.
type Limit struct {
	// The number of units that may be spent in any window. 0 denies everything.
	// Placeholders are allowed.
	Max Value `json:"max"`

	// The length of the window, 1ms or more: `90s`, `5m`, `1h`, `1d`, `1w`. Placeholders
	// are allowed.
	Window Value `json:"window"`

	// The network of an address that the limit counts in place of the address: the leading bits
	// of IPv4 and of IPv6, as in `24/48`. A request is counted in all of its tiers, or in
	// none. Limits go from the address to wider networks. Only where the key is the address of a client.
	// Not with placeholders in the limit, `lease`, or a percentage in `enforce`. Default: the limit counts the key.
	Tier string `json:"tier,omitempty"`
}

func (l Limit) dynamic() bool { return l.Max.dynamic() || l.Window.dynamic() }

// policy returns the limit as the engine takes it.
func (l Limit) policy() (window.Policy, error) {
	limit, err := l.Max.int()
	if err != nil {
		return window.Policy{}, fmt.Errorf("max %w", err)
	}
	length, err := l.Window.duration()
	if err != nil {
		return window.Policy{}, fmt.Errorf("window %w", err)
	}
	p := window.Policy{Limit: limit, Window: length}
	return p, p.Check()
}

// compile returns the limit as requests use it, or what is wrong with it, as far as it is known without a
// request. Field is its name in configuration.
func (l Limit) compile(field string) (c compiled.LimitTemplate, err error) {
	if l.Max == "" || l.Window == "" {
		return c, fmt.Errorf("%s: max or window is missing; write %[1]s <max> <window>", field)
	}
	if err := template.Check(string(l.Max)); err != nil {
		return c, fmt.Errorf("%s max %w", field, err)
	}
	if err := template.Check(string(l.Window)); err != nil {
		return c, fmt.Errorf("%s window %w", field, err)
	}
	known, err := l.known().policy()
	if err != nil {
		if meant, fault, ok := (quantity.LimitText{Max: string(l.Max), Window: string(l.Window)}).Meant(); ok {
			return c, fmt.Errorf("%s %s %s: %s; write %s %s %s", field, l.Max, l.Window, fault, field, meant.Max, meant.Window)
		}
		if cure := foreign.Meaning(foreign.Max, string(l.Max)); cure != "" {
			err = fmt.Errorf("%w; %s", err, cure)
		}
		return c, fmt.Errorf("%s %s %s: %w", field, l.Max, l.Window, err)
	}
	c = compiled.NewLimitTemplate(string(l.Max), string(l.Window), known)
	if l.Tier == "" {
		return c, nil
	}
	tier, err := template.ParseTier(l.Tier)
	switch {
	case err != nil:
		return c, fmt.Errorf("%s: %w", l.in(field), err)
	case field != "limit":
		return c, fmt.Errorf("%s: only a limit has a tier; take tier out", l.in(field))
	case l.dynamic():
		return c, fmt.Errorf("%s: a limit with a tier cannot hold a placeholder; write numbers", l.in(field))
	}
	c.Tier = tier.String()
	return c, nil
}

// in returns the limit as a Caddyfile has it.
func (l Limit) in(field string) string {
	text := fmt.Sprintf("%s %s %s", field, l.Max, l.Window)
	if l.Tier != "" {
		text += " tier " + l.Tier
	}
	return text
}

// known returns the limit with something valid for placeholders.
func (l Limit) known() Limit {
	if l.Max.dynamic() {
		l.Max = "0"
	}
	if l.Window.dynamic() {
		l.Window = "1ms"
	}
	return l
}

// plain returns the limit with its values spelt in one way.
func (l Limit) plain() Limit {
	tier := l.Tier
	if p, err := template.ParseTier(tier); err == nil {
		tier = p.String()
	}
	return Limit{l.Max.canonicalInt(), l.Window.canonicalDuration(), tier}
}

// defaultLeaseTTL is how long a lease lasts unless configured.
const defaultLeaseTTL = time.Second

// Lease says how much of a busy key's limit an instance may take ahead.
type Lease struct {
	// Units that are taken ahead at most, 2 or more.
	Units Value `json:"units"`

	// How long they are kept at most, before what is left of them goes back; half
	// of the shortest window in any case. Default: 1s.
	TTL Value `json:"ttl,omitempty"`
}

// engine returns the lease as the engine takes it, or what is wrong with it.
func (l *Lease) engine(algorithm window.Algorithm) (window.Lease, error) {
	if l == nil {
		return window.Lease{}, nil
	}
	if l.Units == "" {
		return window.Lease{}, errors.New("lease: units are missing: write lease <units> [<ttl>]")
	}
	units, err := l.Units.int()
	if err != nil {
		return window.Lease{}, fmt.Errorf("lease: units: %w", err)
	}
	engine := window.Lease{Units: units, TTL: defaultLeaseTTL}
	if l.TTL != "" {
		if engine.TTL, err = l.TTL.duration(); err != nil {
			return window.Lease{}, fmt.Errorf("lease: ttl: %w", err)
		}
	}
	if err := engine.Check(algorithm); err != nil {
		return window.Lease{}, fmt.Errorf("lease: %w", err)
	}
	return engine, nil
}
