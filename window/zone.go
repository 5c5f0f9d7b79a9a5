package window

import (
	"slices"
	"time"
)

// Zone is what the charges of a quota have in common. It is checked once, so that a store need not
// do that for each charge, and safe for concurrent use.
type Zone struct{ charge Charge }

// Options of a Zone. The zero value has none.
type Options struct {
	// See Charge.
	Pack     int64
	Lease    Lease
	Lookback time.Duration
}

// NewZone returns a zone of which one or more policies all have to hold. Its error wraps
// ErrInvalid, and says what is wrong in words for an operator. A zone whose charges have policies
// of their own still needs one here.
func NewZone(name string, algorithm Algorithm, policies []Policy, o Options) (*Zone, error) {
	c := Charge{
		Zone: name, Policies: slices.Clone(policies), Cost: 1, Algorithm: algorithm,
		Pack: o.Pack, Lease: o.Lease, Lookback: o.Lookback,
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	z := &Zone{charge: c}
	z.charge.zone = z
	return z, nil
}

// Charge returns a charge on a key. Its fields may be set to others than the zone's; the store
// then checks them with each request.
func (z *Zone) Charge(key string, cost int64) Charge {
	c := z.charge
	c.Key, c.Cost = key, cost
	return c
}

// checked reports whether what a zone has checked of the charge is still as it was.
func (c *Charge) checked() bool {
	if c.zone == nil {
		return false
	}
	z := &c.zone.charge
	return len(c.Policies) == len(z.Policies) && &c.Policies[0] == &z.Policies[0] && c.Algorithm == z.Algorithm &&
		c.Pack == z.Pack && c.Lease == z.Lease && c.Lookback == z.Lookback
}
