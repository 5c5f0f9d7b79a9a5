package slidingwindow

import (
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

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

	// How long a slice is while more than half of the limit is left; a denial comes
	// early by at most that.
	Max Value `json:"max"`
}

// slices returns the algorithm of that name as the engine takes it.
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
	return s, nil
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
		return nil, fmt.Errorf("%s and count %s cannot be combined; take out one", layers, a.Count)
	case a.Size != "":
		return nil, fmt.Errorf("%s and size %s cannot be combined; take out one", layers, a.Size)
	case a.Adaptive != nil:
		return nil, fmt.Errorf("%s and adaptive %s %s cannot be combined; take out one", layers, a.Adaptive.Min, a.Adaptive.Max)
	case a.Weighted:
		return nil, fmt.Errorf("%s and weighted cannot be combined; take out weighted, for layers are strict", layers)
	}
	if err := window.CheckAlgorithm(s); err != nil {
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
