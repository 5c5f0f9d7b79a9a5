package slidingwindow

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
)

// Ban denies all requests of a key for a time once the zone has denied some, longer each time.
//
// Each denial by a limit of the zone counts, at most one of a key in a second. Those during a ban do not, nor those
// of an empty key, those that only the load leads to, those with `share` while the store is away, and with `count_if` or
// `settle` those while another request of the key is not answered. A ban ends when it was to end, whatever its key does
// until then. Bans are kept in the store, and hold on all Caddys within a second, also while the store is away. In
// shadow they are only counted.
type Ban struct {
	// How long the first ban lasts, from `1s` to `366d`. Required.
	For Value `json:"for"`

	// How many denials lead to a ban, from 1 to 100. Default: `1`.
	After Value `json:"after,omitempty"`

	// The time in which they come. Required if `after` is above 1.
	In Value `json:"in,omitempty"`

	// By how much each further ban is longer: 1, or from 1.1 to 1000000000. Default: `2`.
	Factor Value `json:"factor,omitempty"`

	// The longest ban, without `spread`. Default: `24h`, or the first ban if that is longer.
	Max Value `json:"max,omitempty"`

	// After each such time without a denial, from the end of the last ban on, the next ban is shorter by one `factor`.
	// Default: `12h`.
	Halve Value `json:"halve,omitempty"`

	// How much longer a ban lasts at random, at most, so that clients do not all come back at once. Default: `0%`.
	Spread Value `json:"spread,omitempty"`

	// The status of requests that a ban denies. Default: the `status` of the handler.
	Status int `json:"status,omitempty"`

	// Whether clients hear neither of the ban nor of its end. Default: they get Retry-After, and the problem type
	// `abnormal-usage-detected`.
	Silent bool `json:"silent,omitempty"`

	// Requests that match are not denied by a ban, and their denials lead to none. Default: none.
	ExceptRaw caddyhttp.RawMatcherSets `json:"except,omitempty" caddy:"namespace=http.matchers"`
}

const (
	defaultBanMax   = 24 * time.Hour
	defaultBanHalve = 12 * time.Hour
)

// compile returns the ban as requests use it, but for the matchers, or what is wrong with it by itself.
func (b *Ban) compile() (*compiled.Ban, error) {
	c := &compiled.Ban{Status: b.Status, Silent: b.Silent}
	c.Rule = bans.Rule{After: 1, In: time.Second.Milliseconds(), Factor: 2000, Halve: defaultBanHalve.Milliseconds()}
	r := &c.Rule
	if b.For == "" {
		return nil, errors.New("ban: the length is missing; write one, such as ban 10m")
	}
	for _, length := range []struct {
		option string
		value  Value
		to     *int64
	}{{"for", b.For, &r.Length}, {"in", b.In, &r.In}, {"max", b.Max, &r.Max}, {"halve", b.Halve, &r.Halve}} {
		if length.value == "" {
			continue
		}
		d, err := length.value.duration()
		if err != nil {
			return nil, fmt.Errorf("ban: %s %w", length.option, err)
		}
		*length.to = d.Milliseconds()
	}
	if b.Max == "" {
		r.Max = max(r.Length, defaultBanMax.Milliseconds())
	}
	if err := b.compileNumbers(r); err != nil {
		return nil, err
	}
	if option, err := r.Check(); err != nil {
		value := map[string]Value{"for": b.For, "in": b.In, "max": b.Max, "halve": b.Halve, "after": b.After, "factor": b.Factor, "spread": b.Spread}[option]
		return nil, fmt.Errorf("ban: %s %s: %w", option, value, err)
	}
	if err := cmp.Or(checkStatus(b.Status), checkMatchers("except", b.ExceptRaw)); err != nil {
		return nil, fmt.Errorf("ban: %w", err)
	}
	return c, nil
}

// compileNumbers reads after, factor and spread.
func (b *Ban) compileNumbers(r *bans.Rule) (err error) {
	if b.After != "" {
		if r.After, err = b.After.int(); err != nil {
			return fmt.Errorf("ban: after %w", err)
		}
		if r.After > 1 && b.In == "" {
			return fmt.Errorf("ban: after %s: the time is missing in which the denials come; write after %[1]s in 1h", b.After)
		}
	}
	if b.Factor != "" {
		factor, err := strconv.ParseFloat(string(b.Factor), 64)
		if err != nil || math.IsNaN(factor) {
			return fmt.Errorf("ban: factor %q is not a number; write one, such as factor 2", b.Factor)
		}
		r.Factor = int64(math.Round(1000 * min(max(factor, 0), 1e12)))
	}
	if b.Spread != "" {
		spread, err := b.Spread.percent()
		if err != nil {
			return fmt.Errorf("ban: spread %w", err)
		}
		r.Spread = int64(math.Round(1000 * min(max(spread, -1), 10)))
	}
	return nil
}

// sharedNames match placeholders whose values many clients have.
var sharedNames = regexp.MustCompile(`^(http\.request\.((orig_)?(method|uri(\.path.*)?)|host.*|port|scheme|proto.*|local.*)|(env|system|file|time)\..*)$`)

// checkBan reports what is wrong with ban, or with what is configured beside it.
func checkBan(z *Zone, c *compiled.Settings) (err error) {
	if z.Ban == nil {
		return nil
	}
	if c.Ban, err = z.Ban.compile(); err != nil {
		return err
	}
	if !slices.ContainsFunc(template.Names(cmp.Or(z.Key, template.DefaultKey)), func(name string) bool { return !sharedNames.MatchString(name) }) {
		return fmt.Errorf("ban: key %s does not tell clients apart, so that one would have the others banned; write one that does, such as key {client_ip}, or take out ban", template.Short(z.Key))
	}
	c.Ban.Rule.Pardon = c.Longest.Milliseconds()
	return nil
}

// provision loads the matchers of a zone's ban, which may be nil.
func (b *Ban) provision(ctx caddy.Context, c *compiled.Ban) error {
	if b == nil || b.ExceptRaw == nil {
		return nil
	}
	loaded, err := ctx.LoadModule(b, "ExceptRaw")
	if err != nil {
		return err
	}
	return c.Except.FromInterface(loaded)
}

// plain returns b with values written in one way and without those that are the default. It has been checked.
func (b *Ban) plain() *Ban {
	p := *b
	p.For, p.In = b.For.canonicalDuration(), b.In.canonicalDuration()
	p.After = unless(b.After.canonicalInt(), "1")
	if factor, err := strconv.ParseFloat(string(b.Factor), 64); err == nil {
		p.Factor = unless(Value(strconv.FormatFloat(factor, 'f', -1, 64)), "2")
	}
	p.Max, p.Halve = unless(b.Max.canonicalDuration(), canonicalDuration(defaultBanMax)), unless(b.Halve.canonicalDuration(), canonicalDuration(defaultBanHalve))
	p.Spread = unless(b.Spread.plainPercent(), "0%")
	return &p
}
