package slidingwindow

import (
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Algorithm says how the history of a key is kept.
type Algorithm struct {
	// `zset` keeps every unit, and is exact. `slices` counts units per slice of
	// the window: constant memory, early by at most one slice. Default: `zset`.
	Name string `json:"name,omitempty"`

	// Only for slices: how many slices a window is cut into. Default: 60.
	Count Value `json:"count,omitempty"`

	// Only for slices: how long a slice is; instead of `count`.
	Size Value `json:"size,omitempty"`

	// Only for slices: count the slice that is leaving the window in part, as if
	// its units had been spread evenly. Closer on average, but up to twice the
	// limit may pass in one window. Default: false, the slice counts as a whole.
	Weighted bool `json:"weighted,omitempty"`

	// Only for slices: count in slices of two lengths. As accurate as slices of
	// the fine length, for a decision that reads few of them. Excludes the other
	// options.
	Layers *Layers `json:"layers,omitempty"`

	// Only for slices: let the load choose how long a slice is. Excludes the other
	// options.
	Adaptive *Adaptive `json:"adaptive,omitempty"`
}

// Layers are slices of two lengths, one over the other.
type Layers struct {
	// How long a coarse slice is: a whole multiple of `fine`, and no longer than
	// any window of the zone.
	Coarse Value `json:"coarse"`

	// How long a fine slice is; a denial comes early by at most that.
	Fine Value `json:"fine"`
}

// Adaptive bounds the length of slices, which is chosen from how much of the
// limit is left.
type Adaptive struct {
	// How long a slice is when nothing is left.
	Min Value `json:"min"`

	// How long a slice is while half of the limit or more is left; a denial comes
	// early by at most that.
	Max Value `json:"max"`
}

var (
	errZsetOptions = errors.New("algorithm zset: takes no options; count, size, strict, weighted, layers and adaptive belong to slices")
	errZero        = errors.New("0 is not above 0")
)

// engine returns the algorithm as the engine takes it, or what is wrong with it.
func (a *Algorithm) engine() (window.Algorithm, error) {
	if a == nil {
		return window.Zset{}, nil
	}
	switch a.Name {
	case "", "zset":
		if a.Count != "" || a.Size != "" || a.Weighted || a.Layers != nil || a.Adaptive != nil {
			return nil, errZsetOptions
		}
		return window.Zset{}, nil
	case "slices":
		algorithm, err := a.slices()
		if err != nil {
			return nil, fmt.Errorf("algorithm slices: %w", err)
		}
		return algorithm, nil
	}
	return nil, fmt.Errorf("algorithm %q is unknown; use zset or slices", a.Name)
}

func (a *Algorithm) slices() (window.Algorithm, error) {
	if a.Layers != nil {
		return a.layers()
	}
	s := window.Slices{Weighted: a.Weighted}
	var err error
	if a.Count != "" {
		if s.Count, err = a.Count.int(); err == nil && s.Count == 0 {
			err = errZero
		}
		if err != nil {
			return nil, fmt.Errorf("count %w", err)
		}
	}
	if a.Size != "" {
		if s.Size, err = a.Size.length(); err != nil {
			return nil, fmt.Errorf("size %w", err)
		}
	}
	if ad := a.Adaptive; ad != nil {
		if s.Min, err = ad.Min.length(); err != nil {
			return nil, fmt.Errorf("adaptive %s %s: min %w", ad.Min, ad.Max, err)
		}
		if s.Max, err = ad.Max.length(); err != nil {
			return nil, fmt.Errorf("adaptive %s %s: max %w", ad.Min, ad.Max, err)
		}
	}
	return s, s.Check()
}

func (a *Algorithm) layers() (window.Algorithm, error) {
	var s window.Layers
	var err error
	layers := fmt.Sprintf("layers %s %s", a.Layers.Coarse, a.Layers.Fine)
	if s.Coarse, err = a.Layers.Coarse.length(); err != nil {
		return nil, fmt.Errorf("%s: coarse %w", layers, err)
	}
	if s.Fine, err = a.Layers.Fine.length(); err != nil {
		return nil, fmt.Errorf("%s: fine %w", layers, err)
	}
	switch {
	case a.Count != "":
		return nil, fmt.Errorf("%s and count %s exclude each other", layers, a.Count)
	case a.Size != "":
		return nil, fmt.Errorf("%s and size %s exclude each other", layers, a.Size)
	case a.Adaptive != nil:
		return nil, fmt.Errorf("%s and adaptive %s %s exclude each other", layers, a.Adaptive.Min, a.Adaptive.Max)
	case a.Weighted:
		return nil, fmt.Errorf("%s and weighted exclude each other: layers are strict", layers)
	}
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", layers, err)
	}
	return s, nil
}

// length is the duration of a slice.
func (v Value) length() (time.Duration, error) {
	d, err := v.duration()
	if err == nil && d == 0 {
		err = errZero
	}
	return d, err
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
		case "layers":
			a.Layers = new(Layers)
			if !d.AllArgs((*string)(&a.Layers.Coarse), (*string)(&a.Layers.Fine)) {
				return d.ArgErr()
			}
		case "adaptive":
			a.Adaptive = new(Adaptive)
			if !d.AllArgs((*string)(&a.Adaptive.Min), (*string)(&a.Adaptive.Max)) {
				return d.ArgErr()
			}
		case "strict", "weighted":
			if d.NextArg() {
				return d.ArgErr()
			}
			if a.Name == "zset" {
				return d.WrapErr(errZsetOptions)
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
