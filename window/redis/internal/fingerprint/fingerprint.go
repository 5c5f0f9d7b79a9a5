// Package fingerprint writes all of a charge that its decisions depend on.
package fingerprint

import (
	"encoding/binary"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// AppendDenied is Append without the limits, unless their algorithm is gcra.
func AppendDenied(dst []byte, c *window.Charge) []byte {
	if _, ok := c.Algorithm.(window.GCRA); ok {
		return Append(dst, c, c.Cost)
	}
	dst = appendOptions(dst, c, c.Cost)
	for _, p := range c.Policies {
		dst = binary.AppendVarint(dst, p.Window.Milliseconds())
	}
	return dst
}

// Append appends all of a charge that its decisions depend on, in a way
// that can be read back, so that no two charges are the same bytes.
func Append(dst []byte, c *window.Charge, cost int64) []byte {
	dst = appendOptions(dst, c, cost)
	for _, p := range c.Policies {
		dst = binary.AppendVarint(binary.AppendVarint(dst, p.Limit), p.Window.Milliseconds())
	}
	return dst
}

// appendOptions appends all of it but the policies.
func appendOptions(dst []byte, c *window.Charge, cost int64) []byte {
	var options []int64
	native := window.NativeOff // counts apart
	switch a := c.Algorithm.(type) {
	case window.Slices: // where the type is known, the options need no allocation
		options = window.OptionsOf(a)
	case window.Layers:
		options = window.OptionsOf(a)
	case window.Stream:
		options = window.OptionsOf(a)
	case window.GCRA:
		options, native = window.OptionsOf(a), a.Native
	default:
		options = window.OptionsOf(a)
	}
	dst = binary.AppendVarint(engine.AppendKey(dst, c), int64(native)) // a byte that no name has
	dst = binary.AppendVarint(binary.AppendVarint(dst, c.Pack), cost)
	dst = binary.AppendVarint(dst, int64(len(options)))
	for _, o := range options {
		dst = binary.AppendVarint(dst, o)
	}
	return binary.AppendVarint(dst, int64(len(c.Policies)))
}
