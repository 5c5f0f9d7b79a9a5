package slidingwindow

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Algorithm says how the history of a key is kept.
type Algorithm struct {
	// `zset` keeps every unit, and is exact. `slices` counts units per slice of
	// the window: constant memory, early by at most one slice. `stream` is as exact
	// as zset and keeps who and what in a Redis Stream. Default: `zset`.
	Name string `json:"name,omitempty"`

	// Only for slices: how many slices a window is cut into. Default: 60.
	Count Value `json:"count,omitempty"`

	// Only for slices: how long a slice is; instead of `count`.
	Size Value `json:"size,omitempty"`

	// Only for slices: count the slice that is leaving the window in part, as if
	// its units had been spread evenly. Closer on average, but up to twice the
	// limit may pass in one window. Default: false, the slice counts as a whole.
	Weighted bool `json:"weighted,omitempty"`

	// Only for stream: what to note of each request that is admitted, in order.
	// Default: nothing but its time and cost.
	Fields []Field `json:"fields,omitempty"`

	// Only for stream: how long what was noted stays readable, if longer than the
	// longest window. It counts no longer for that. The memory store, where there
	// is nothing to read, ignores it. Default: 0, the longest window.
	Keep Value `json:"keep,omitempty"`
}

var (
	errZsetOptions   = errors.New("algorithm zset: takes no options; count, size, strict and weighted belong to slices")
	errStreamOptions = errors.New("algorithm stream: count, size, strict and weighted belong to slices")
	errZero          = errors.New("0 is not above 0")
)

// engine returns the algorithm as the engine takes it, or what is wrong with it.
func (a *Algorithm) engine() (window.Algorithm, error) {
	if a == nil {
		return window.Zset{}, nil
	}
	if a.Name != "stream" && (len(a.Fields) > 0 || a.Keep != "") {
		return nil, errors.New("algorithm: fields and keep belong to stream")
	}
	switch a.Name {
	case "", "zset":
		if a.Count != "" || a.Size != "" || a.Weighted {
			return nil, errZsetOptions
		}
		return window.Zset{}, nil
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
	case "stream":
		if a.Count != "" || a.Size != "" || a.Weighted {
			return nil, errStreamOptions
		}
		s, err := a.stream()
		if err != nil {
			return nil, fmt.Errorf("algorithm stream: %w", err)
		}
		return s, nil
	}
	return nil, fmt.Errorf("algorithm %q is unknown; use zset, slices or stream", a.Name)
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
			switch a.Name {
			case "zset":
				return d.WrapErr(errZsetOptions)
			case "stream":
				return d.WrapErr(errStreamOptions)
			}
			if seen["strict"] && seen["weighted"] {
				return d.Err("strict and weighted exclude each other")
			}
			a.Weighted = option == "weighted"
		case "fields":
			words := d.RemainingArgs()
			if len(words) == 0 {
				return d.ArgErr()
			}
			var err error
			if a.Fields, err = readFields(words); err != nil {
				return d.WrapErr(fmt.Errorf("algorithm %s: %w", a.Name, err))
			}
		case "keep":
			if !d.AllArgs((*string)(&a.Keep)) {
				return d.ArgErr()
			}
		default:
			return d.Errf("unrecognized subdirective %q of algorithm %s", option, a.Name)
		}
		if _, err := a.engine(); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}
