// Package window decides whether a request fits under its limits, each of
// which holds in every interval of one window's length.
//
// A [Store] keeps the history of each key and decides with an [Algorithm].
// The package knows neither Caddy nor Redis; package memory keeps the history
// in this process, package redis on a server that a fleet shares.
package window

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Never is the RetryAfter of a charge that no waiting helps: its cost is above
// the limit itself.
const Never = time.Duration(math.MaxInt64)

// MaxProduct bounds Limit × Window in milliseconds, so that everything that is
// computed stays exact in the doubles of Lua (2^53).
const MaxProduct = int64(1) << 53

// MaxFields is how many fields a charge may have.
const MaxFields = 100

// Bounds of a packed counter, whose state must fit into the 64 bytes of a field in a small
// hash.
const (
	maxPackedPolicies = 3 // with GCRA; one with Slices
	maxPackedSlices   = 3 // Slices.Count
)

// Policy is a limit: at most Limit units in every interval (t-Window, t].
type Policy struct {
	// Units allowed in any window; 0 or more. 0 denies every cost.
	Limit int64
	// Whole milliseconds, 1 or more. Limit × Window(ms) is at most MaxProduct.
	Window time.Duration
}

// String returns the policy as in "100 per 1h0m0s".
func (p Policy) String() string { return fmt.Sprintf("%d per %s", p.Limit, p.Window) }

// Check reports what is wrong with the policy, in words for an operator.
func (p Policy) Check() error {
	switch {
	case p.Limit < 0:
		return fmt.Errorf("limit %d is negative; use 0 to deny everything", p.Limit)
	case p.Window <= 0:
		return fmt.Errorf("window %s: must be greater than 0", p.Window)
	case p.Window%time.Millisecond != 0:
		return fmt.Errorf("window %s is not a whole number of milliseconds", p.Window)
	case p.Limit > MaxProduct/p.Window.Milliseconds():
		return fmt.Errorf("limit %d × window %s is too large: limit × milliseconds must not exceed 2^53", p.Limit, p.Window)
	}
	return nil
}

// Charge is what one request wants to spend on one key of one zone.
type Charge struct {
	// Zone and Key name the counter, together with the algorithm's name; any
	// bytes, any length. Policies are not part of the name: a changed policy acts
	// on the history that is there.
	Zone, Key string
	// Limits that all have to hold; one or more.
	Policies []Policy
	// Units to spend; 0 looks without spending.
	Cost int64
	// How the history is kept.
	Algorithm Algorithm
	// Fields of the request that Stream notes: name, value, name, value and so on, of any
	// bytes. The other algorithms ignore them.
	Fields []string
	// How many counters the zone is expected to have, for a store in Redis to keep
	// many of them in one key; 0 for a key each. Only with GCRA and no more than three
	// policies, or with Slices whose Count is from 1 to 3 and one policy. It is a part of
	// the counter's name there: with another number it starts afresh. Other stores have no
	// use for it.
	Pack int64
	// How much a store may take ahead. The memory store has no use for it.
	Lease Lease
	// How far back the zone looks, if other requests on the counter may have longer
	// windows than this one; whole milliseconds. No decision forgets a unit that is
	// younger. Default: the longest window of Policies.
	Lookback time.Duration

	zone *Zone // that made the charge; nil for none
}

// Check returns an error that wraps ErrInvalid unless a store can decide on the charge.
func (c *Charge) Check() error {
	switch {
	case c.Algorithm == nil:
		return fmt.Errorf("zone %q: %w: no algorithm", c.Zone, ErrInvalid)
	case c.Cost < 0:
		return fmt.Errorf("zone %q: %w: cost %d is negative", c.Zone, ErrInvalid, c.Cost)
	case len(c.Policies) == 0:
		return fmt.Errorf("zone %q: %w: no limit", c.Zone, ErrInvalid)
	case len(c.Fields)%2 != 0, len(c.Fields) > 2*MaxFields:
		return fmt.Errorf("zone %q: %w: fields: %d words are not %d pairs of name and value at most", c.Zone, ErrInvalid, len(c.Fields), MaxFields)
	case c.checked():
		return nil
	}
	if err := c.Algorithm.check(); err != nil {
		return fmt.Errorf("zone %q: %w: %s: %w", c.Zone, ErrInvalid, c.Algorithm.Name(), err)
	}
	for _, p := range c.Policies {
		if err := p.Check(); err != nil {
			return fmt.Errorf("zone %q: %w: %w", c.Zone, ErrInvalid, err)
		}
		if err := CheckPolicy(c.Algorithm, p); err != nil {
			return fmt.Errorf("zone %q: %w: %s: %w", c.Zone, ErrInvalid, c.Algorithm.Name(), err)
		}
	}
	if c.Lookback < 0 || c.Lookback%time.Millisecond != 0 {
		return fmt.Errorf("zone %q: %w: lookback %s is not a whole number of milliseconds of 0 or more", c.Zone, ErrInvalid, c.Lookback)
	}
	if err := c.Lease.Check(c.Algorithm); err != nil {
		return fmt.Errorf("zone %q: %w: lease: %w", c.Zone, ErrInvalid, err)
	}
	if err := CheckPack(c.Algorithm, len(c.Policies), c.Pack); err != nil {
		return fmt.Errorf("zone %q: %w: %w", c.Zone, ErrInvalid, err)
	}
	return nil
}

// Lease lets a store that other processes share take units ahead, to hand them out
// without asking its server each time. The limit holds as strictly as without leases, if all
// requests on the counter have the same limits: a lease does not know what others use up.
//
// No other process can spend the units of a lease, so that up to Units may be denied that
// would have passed. A process that is killed leaves its units spent for one window. Units
// that it has handed out may count from the beginning of the lease: up to that number more
// may pass within TTL of the end of that window.
type Lease struct {
	// Units to take ahead at most; 0 for no lease. Stream, GCRA and weighted slices
	// have none.
	Units int64
	// How long a lease lasts at most, in whole milliseconds. A lease never lasts longer than half of the shortest window.
	TTL time.Duration
}

// Decision is the verdict on one policy of one charge.
type Decision struct {
	// Whether this policy lets the charge pass. Units are spent only if every
	// policy of every charge of the request does.
	Allowed bool
	// How many ms later than At the units were charged under the counter's former name, on
	// the clock of another server; 0 where one server has both names. See Settlement.
	Former int32
	// What may pass at once, which is the policy's limit unless the algorithm says
	// otherwise, and what is left of it after the decision; 0 or more.
	Limit, Remaining int64
	// Time until the same cost would pass if nothing else came: 0 if allowed,
	// Never if waiting cannot help.
	RetryAfter time.Duration
	// Time until Remaining is Limit, if nothing more is spent.
	ResetAfter time.Duration
	// Time in which no more than Remaining can pass. Exact when Remaining is 0 or
	// nothing was spent; else the whole window.
	EffectiveWindow time.Duration
	// When the store decided, on its own clock, in Unix milliseconds. It names
	// the units that were spent, for GiveBack. 0 if the store did not say.
	At int64
}

// Result is the answer to one request of a batch.
type Result struct {
	// Decisions has one for each policy of each charge, as of Store.Take; nil with an error.
	Decisions []Decision
	// Err is the error of this request alone.
	Err error
}

// Store keeps histories and decides on them. It is safe for concurrent use.
//
// A denial is a Decision, never an error. Errors wrap ErrUnavailable, or
// ErrInvalid for charges that make no sense, and keep the context's error
// visible. After an error that wraps ErrUnknown it is unknown whether the request was
// charged; it was charged at most once. After any other error it was not.
type Store interface {
	// Take decides on one request: everything is spent or nothing. It returns
	// one Decision per policy, in the order of the charges and, within each, of
	// its policies. No two charges of a request may name the same counter. After
	// an error the store may still read the charges: leave them as they are.
	Take(ctx context.Context, charges []Charge) ([]Decision, error)

	// TakeBatch takes many requests at once, one after the other, each with its
	// own verdict: Result i answers request i.
	TakeBatch(ctx context.Context, requests [][]Charge) []Result

	// Peek answers as Take would, and spends nothing.
	Peek(ctx context.Context, charges []Charge) ([]Decision, error)

	// GiveBack gives back units of those that a charge spent at the time at
	// (Decision.At), and no more than are left of them; from 0 to MaxProduct. The
	// charge's cost is not used.
	GiveBack(ctx context.Context, charge Charge, at, units int64) error

	// ChargeMore spends units now, from 0 to MaxProduct, above the limit if need be.
	// The charge's cost is not used.
	ChargeMore(ctx context.Context, charge Charge, units int64) error

	// Reset forgets the history of the charge's counter. Its policies and cost are
	// not used.
	Reset(ctx context.Context, charge Charge) error

	// Close releases what the store holds. Calls after it may fail.
	Close() error

	// String names the store for logs and metric labels, without secrets. Two
	// stores of one name hold the same counters, if they have the same secret.
	String() string
}

// Check reports what is wrong with a lease for an algorithm, in words for an
// operator.
func (l Lease) Check(a Algorithm) error {
	switch {
	case l == Lease{}:
		return nil
	case l.Units < 2:
		return fmt.Errorf("units: %d is below 2", l.Units)
	case l.Units > MaxProduct:
		return fmt.Errorf("units: %d is above 2^53", l.Units)
	case l.TTL < time.Millisecond, l.TTL%time.Millisecond != 0:
		return fmt.Errorf("ttl %s is not a whole number of milliseconds above 0", l.TTL)
	}
	if !a.facts().Lease(a) {
		return fmt.Errorf("%s cannot be leased; use zset, log or strict slices", a.Name())
	}
	return nil
}

// Allowed reports whether every decision lets the request pass.
func Allowed(decisions []Decision) bool {
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}

// Longest returns how far back the charge looks, in ms: its longest window or, if that is
// longer, Lookback.
func (c *Charge) Longest() int64 {
	ms := c.Lookback.Milliseconds()
	for i := range c.Policies {
		ms = max(ms, int64(c.Policies[i].Window/time.Millisecond))
	}
	return ms
}
