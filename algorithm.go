package slidingwindow

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Algorithm says how the history of a key is kept.
type Algorithm struct {
	// `zset` keeps every unit, and is exact. `log` is as exact, and packed into a
	// few bytes per request. `slices` counts units per slice of the window:
	// constant memory, early by at most one slice. Default: `zset`.
	Name string `json:"name,omitempty"`

	// Only for slices: how many slices a window is cut into. Default: 60.
	Count Value `json:"count,omitempty"`

	// Only for slices: how long a slice is; instead of `count`.
	Size Value `json:"size,omitempty"`

	// Only for slices: count the slice that is leaving the window in part, as if
	// its units had been spread evenly. Closer on average, but up to twice the
	// limit may pass in one window. Default: false, the slice counts as a whole.
	Weighted bool `json:"weighted,omitempty"`
}

var errZero = errors.New("0 is not above 0")

// engine returns the algorithm as the engine takes it, or what is wrong with it.
func (a *Algorithm) engine() (window.Algorithm, error) {
	if a == nil {
		return window.Zset{}, nil
	}
	switch a.Name {
	case "", "zset":
		return window.Zset{}, a.checkNoOptions()
	case "log":
		return window.Log{}, a.checkNoOptions()
	case "slices":
		s := window.Slices{Weighted: a.Weighted}
		var err error
		if a.Count != "" {
			if s.Count, err = a.Count.int(); err == nil && s.Count == 0 {
				err = errZero
			}
			if err != nil {
				return nil, fmt.Errorf("algorithm slices: count %w", err)
			}
		}
		if a.Size != "" {
			if s.Size, err = a.Size.duration(); err == nil && s.Size == 0 {
				err = errZero
			}
			if err != nil {
				return nil, fmt.Errorf("algorithm slices: size %w", err)
			}
		}
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("algorithm slices: %w", err)
		}
		return s, nil
	}
	return nil, fmt.Errorf("algorithm %q is unknown; use zset, log or slices", a.Name)
}

func (a *Algorithm) checkNoOptions() error {
	if a.Count != "" || a.Size != "" || a.Weighted {
		return a.noOptionsError()
	}
	return nil
}

func (a *Algorithm) noOptionsError() error {
	return fmt.Errorf("algorithm %s: takes no options; count, size, strict and weighted belong to slices", cmp.Or(a.Name, "zset"))
}

// unmarshal reads the algorithm's name and block.
func (a *Algorithm) unmarshal(d *caddyfile.Dispenser) error {
	if !d.AllArgs(&a.Name) {
		return d.ArgErr()
	}
	if _, err := a.engine(); err != nil {
		return d.WrapErr(err)
	}
	seen := make(seenOptions)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		option := d.Val()
		if err := seen.once(d); err != nil {
			return err
		}
		switch option {
		case "count":
			if !d.AllArgs((*string)(&a.Count)) {
				return d.ArgErr()
			}
		case "size":
			if !d.AllArgs((*string)(&a.Size)) {
				return d.ArgErr()
			}
		case "strict", "weighted":
			if d.NextArg() {
				return d.ArgErr()
			}
			if a.Name != "slices" {
				return d.WrapErr(a.noOptionsError())
			}
			if seen["strict"] && seen["weighted"] {
				return d.Err("strict and weighted exclude each other")
			}
			a.Weighted = option == "weighted"
		default:
			return d.Errf("unrecognized subdirective %q of algorithm %s", option, a.Name)
		}
		if _, err := a.engine(); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}
