package slidingwindow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Concurrent limits how many requests are open at the same time. Each holds one slot, whatever it costs.
type Concurrent struct {
	// The number of requests of a key that may be open at once. 0 denies everything. Placeholders are allowed.
	Max Value `json:"max"`

	// The number that holds where the placeholders of max give no valid one. Required if max has placeholders.
	Fallback Value `json:"fallback,omitempty"`

	// When slots of a Caddy are free again that no longer runs, or is cut off from a redis store: once it was silent for as
	// long, from `2s` to `10m`. A request may be open for longer. Default: `15s`.
	Lease Value `json:"lease,omitempty"`

	// Until when a request is open: `body` until its answer has ended, `status` until its answer has begun. An upgraded
	// connection, such as a WebSocket, is open until it closes. Default: `body`.
	Hold string `json:"hold,omitempty"`
}

// Words and bounds of concurrent.
const (
	holdBody   = "body"
	holdStatus = "status"

	shortestHeld = 2 * time.Second
	longestHeld  = 10 * time.Minute
	defaultHeld  = 15 * time.Second
)

// compile returns the limit as requests use it, of which the window is the lease, or what is wrong with the option by itself.
func (o *Concurrent) compile() (limit compiled.LimitTemplate, err error) {
	lease := defaultHeld
	if o.Lease != "" {
		if lease, err = o.Lease.duration(); err != nil {
			return limit, fmt.Errorf("lease %w", err)
		}
	}
	known, field := o.Max, ""
	if o.Max.dynamic() {
		known, field = o.Fallback, "fallback "
	}
	n, err := known.int()
	switch most := window.MaxProduct / max(1, lease.Milliseconds()); {
	case lease < shortestHeld || lease > longestHeld:
		return limit, fmt.Errorf("lease %s: must be from 2s to 10m; a request may be open for longer, for its Caddy renews the lease", o.Lease)
	case o.Max == "":
		return limit, errors.New("max is missing; write concurrent <max>, such as concurrent 4")
	case known == "":
		return limit, fmt.Errorf("%s: holds a placeholder, so a fallback is required; write fallback 4, or another number, in the block of concurrent", o.Max)
	case !o.Max.dynamic() && o.Fallback != "":
		return limit, fmt.Errorf("fallback %s: max has no placeholder; take fallback out", o.Fallback)
	case err != nil:
		return limit, fmt.Errorf("%s%w", field, err)
	case n < 0 || n > most:
		return limit, fmt.Errorf("%s%d: must be from 0 to %d", field, n, most)
	}
	if err = cmp.Or(template.Check(string(o.Max)), checkWord("hold", o.Hold, "", holdBody, holdStatus)); err != nil {
		return limit, err
	}
	return compiled.NewLimitTemplate(string(o.Max), "", window.Policy{Limit: n, Window: lease}), nil
}

// checkConcurrent reports what is wrong with concurrent, or with what is configured beside it.
func checkConcurrent(z *Zone, c *compiled.Settings) error {
	o := z.Concurrent
	if o == nil {
		return nil
	}
	limit, err := o.compile()
	if err = cmp.Or(err, z.checkBeside(c)); err != nil {
		return fmt.Errorf("concurrent %w", err)
	}
	c.AddConcurrent(limit, o.Hold == holdStatus)
	c.Configured.Limits = slices.Insert(c.Configured.Limits, min(len(c.Limits), len(c.Configured.Limits)), control.LimitInfo{
		Max: template.Short(string(o.Max.canonicalInt())), Concurrent: true, Lease: normalize.Duration(limit.Known.Window), Hold: cmp.Or(o.Hold, holdBody),
	})
	return nil
}

// checkBeside reports an option of the zone that does not go with concurrent.
func (z *Zone) checkBeside(c *compiled.Settings) error {
	switch {
	case len(z.Limits) > 0 && z.Lease != nil:
		return errors.New("and lease cannot be combined, for a request that counts in several places takes no lease; take out one of them")
	case len(z.Limits) > 0 && c.Native.Native == window.NativeOn:
		return errNative(errors.New("the zone counts requests at the same time, too"))
	case len(z.Limits) > 0:
		return nil
	}
	others := map[string]bool{
		"fallback": z.Fallback != nil, "algorithm": z.Algorithm != nil, "pack": z.Pack != "", "cost": z.Cost.canonicalInt() != "1" && z.Cost != "",
		"lease": z.Lease != nil, "count_if": z.CountIf != nil, "settle": z.Settle != nil, "load": z.Load != nil,
	}
	for _, option := range slices.Sorted(maps.Keys(others)) {
		if others[option] {
			return fmt.Errorf("and %s cannot be combined in a zone without limit: a request holds one slot until its answer is over, and nothing else is counted; add limit <max> <window>, or take %[1]s out", option)
		}
	}
	return nil
}

// plain returns o with values written in one way and without those that are the default.
func (o *Concurrent) plain() *Concurrent {
	return &Concurrent{
		o.Max.canonicalInt(), o.Fallback.canonicalInt(),
		unless(o.Lease.canonicalDuration(), canonicalDuration(defaultHeld)), unless(o.Hold, holdBody),
	}
}

// readConcurrent reads how many requests may be open at once, and the block behind it.
func readConcurrent(z *Zone, d *caddyfile.Dispenser) error {
	o, seen := new(Concurrent), make(suggest.Seen)
	if z.Concurrent = o; !d.AllArgs((*string)(&o.Max)) {
		return suggest.ArgErr(d)
	}
	z.concurrentAt = place(d) // what goes with it is known at the end of the zone
	values := map[string]*string{"fallback": (*string)(&o.Fallback), "lease": (*string)(&o.Lease), "hold": &o.Hold}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		option, value := d.Val(), values[d.Val()]
		if err := seen.Once(d); err != nil {
			return err
		}
		switch {
		case value == nil:
			return suggest.NoOption(d, " of concurrent", []string{"fallback", "lease", "hold"})
		case !d.AllArgs(value) || *value == "":
			return d.Errf("%s takes one value: write %[1]s %s", option, map[string]string{"fallback": "4", "lease": "15s", "hold": holdBody}[option])
		}
	}
	return nil
}
