package engine

import (
	"fmt"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// CheckCharges returns an error that wraps ErrInvalid unless the charges make up
// a request that a store can decide on.
func CheckCharges(charges []window.Charge) error {
	for i := range charges {
		c := &charges[i]
		if err := c.Check(); err != nil {
			return err
		}
		if IsNative(c) && CountPolicies(charges) > 1 {
			return fmt.Errorf("zone %q: %w: gcra: native and a second limit or zone cannot be combined", c.Zone, window.ErrInvalid)
		}
		for j := range i {
			o := &charges[j]
			if o.Zone == c.Zone && o.Key == c.Key && o.Algorithm.Name() == c.Algorithm.Name() {
				return fmt.Errorf("zone %q: %w: the same counter twice in one request", c.Zone, window.ErrInvalid)
			}
		}
	}
	return nil
}

// IsNative reports whether CL.THROTTLE may decide on a charge.
func IsNative(c *window.Charge) bool {
	a, ok := c.Algorithm.(window.GCRA)
	return ok && a.Native != window.NativeOff
}

// IsHeld reports whether a charge holds its units until they are given back.
func IsHeld(c *window.Charge) bool { return window.FactsOf(c.Algorithm).Held }

// CheckSettle returns an error that wraps ErrInvalid unless a store can settle
// delta on the charge; see Settle.
func CheckSettle(c window.Charge, delta int64) error {
	if delta < -window.MaxProduct || delta > window.MaxProduct {
		return fmt.Errorf("zone %q: %w: delta %d is beyond 2^53", c.Zone, window.ErrInvalid, delta)
	}
	return checkSettled(c)
}

// CheckUnits returns an error that wraps ErrInvalid unless a store can give back units of the
// charge, and charge more.
func CheckUnits(c window.Charge, units int64) error {
	if units < 0 || units > window.MaxProduct {
		return fmt.Errorf("zone %q: %w: units %d: must be from 0 to 2^53", c.Zone, window.ErrInvalid, units)
	}
	return checkSettled(c)
}

func checkSettled(c window.Charge) error {
	if IsNative(&c) {
		return fmt.Errorf("zone %q: %w: gcra: native counts cannot be settled", c.Zone, window.ErrInvalid)
	}
	return CheckCharges([]window.Charge{c})
}

// CheckReset returns an error that wraps ErrInvalid unless the charge names a
// counter.
func CheckReset(c window.Charge) error {
	if c.Algorithm == nil {
		return fmt.Errorf("zone %q: %w: no algorithm", c.Zone, window.ErrInvalid)
	}
	if err := window.CheckPack(c.Algorithm, 0, c.Pack); err != nil {
		return fmt.Errorf("zone %q: %w: %w", c.Zone, window.ErrInvalid, err)
	}
	return nil
}

// CountPolicies returns how many decisions a request of these charges gets.
func CountPolicies(charges []window.Charge) int {
	n := 0
	for i := range charges {
		n += len(charges[i].Policies)
	}
	return n
}

// MakeDecisions returns a slice with one Decision per policy of charges. It reuses the
// array of room if that is large enough. The contents are unspecified.
func MakeDecisions(charges []window.Charge, room []window.Decision) []window.Decision {
	return slices.Grow(room[:0], CountPolicies(charges))[:CountPolicies(charges)]
}
