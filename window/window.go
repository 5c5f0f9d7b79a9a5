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
	"slices"
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
	MaxPackedPolicies = 3 // with GCRA; one with Slices
	MaxPackedSlices   = 3 // Slices.Count
)

// Policy is a limit: at most Limit units in every interval (t-Window, t].
type Policy struct {
	// Units allowed in any window; 0 or more. 0 denies every cost.
	Limit int64
	// Whole milliseconds, 1 or more. Limit × Window(ms) is at most MaxProduct.
	Window time.Duration
}

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
	// many of them in one key; 0 for a key each. Only with GCRA and no more than
	// MaxPackedPolicies policies, or with Slices whose Count is from 1 to
	// MaxPackedSlices and one policy. It is a part of the counter's name there: with
	// another number it starts afresh. Other stores have no use for it.
	Pack int64
	// How much a store may take ahead. The memory store has no use for it.
	Lease Lease
	// How far back the zone looks, if other requests on the counter may have longer
	// windows than this one; whole milliseconds. No decision forgets a unit that is
	// younger. Default: the longest window of Policies.
	Lookback time.Duration
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
	// How long a lease lasts at most, in whole milliseconds. It is over after half
	// of the shortest window in any case.
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
	// the units that were spent, for Settle. 0 if the store did not say.
	At int64
}

// Result is the answer to one request of a batch.
type Result struct {
	Decisions []Decision
	Err       error
}

// Store keeps histories and decides on them. It is safe for concurrent use.
//
// A denial is a Decision, never an error. Errors wrap ErrUnavailable, or
// ErrInvalid for charges that make no sense, and keep the context's error
// visible. After an error that wraps ErrUnknown nobody knows whether the request was
// charged; it was charged at most once. After any other error it was not.
type Store interface {
	// Take decides on one request: everything is spent or nothing. It returns
	// one Decision per policy, in the order of the charges and, within each, of
	// its policies. No two charges of a request may name the same counter. After
	// an error the store may still read the charges: leave them as they are.
	//
	// The decisions are written into room if they fit there, such as into those of an
	// earlier request: Take(ctx, charges, old...). Else they get new memory.
	Take(ctx context.Context, charges []Charge, room ...Decision) ([]Decision, error)

	// TakeBatch takes many requests at once, one after the other, each with its
	// own verdict: Result i answers request i.
	TakeBatch(ctx context.Context, requests [][]Charge) []Result

	// Peek answers as Take would, and spends nothing.
	Peek(ctx context.Context, charges []Charge) ([]Decision, error)

	// Settle corrects what a charge spent. A negative delta gives back at most
	// that many of the units spent at the time at (Decision.At); a positive one
	// spends more units now, above the limit if need be. The charge's cost is
	// not used.
	Settle(ctx context.Context, charge Charge, at, delta int64) error

	// Reset forgets the history of the charge's counter. Its policies and cost are
	// not used.
	Reset(ctx context.Context, charge Charge) error

	// Close releases what the store holds. Calls after it may fail.
	Close() error

	// String names the store for logs and metric labels, without secrets. Two
	// stores of one name hold the same counters, if they have the same secret.
	String() string
}

// Pinger is implemented by stores that can be away.
type Pinger interface {
	// Ping makes a decision of no effect, and reports whether the store could.
	Ping(ctx context.Context) error
}

// Parted is implemented by stores of which a part can be away while the others decide, as a node
// of a Cluster can. Parts have names, without secrets; there are few.
type Parted interface {
	// Parts appends the names of the parts that a request needs, each once. It does not wait.
	// The name is empty where it is not known, or for a store of one part.
	Parts(charges []Charge, names []string) []string
	// PingPart is Pinger.Ping for a part: it decides on a counter that the part held when it
	// failed. It returns nil for a part that holds nothing.
	PingPart(ctx context.Context, name string) error
}

// Foreteller is implemented by stores that answer some requests without their server.
type Foreteller interface {
	// Foretell returns what Take would answer at once without asking the server, but as Peek does:
	// nothing is spent. It returns nil if Take would ask.
	Foretell(charges []Charge) ([]Decision, Source)
}

// Source says what decides on a request.
type Source string

// Sources other than the store itself.
const (
	SourceStore      Source = ""           // the store, or its server
	SourceLease      Source = "lease"      // units that were taken ahead
	SourceRemembered Source = "remembered" // a denial that still holds
	SourceLocal      Source = "local"      // counts of this process, in the store's place
)

// CounterNamer is implemented by stores that keep counters on a server, where an operator can
// look for them.
type CounterNamer interface {
	// CounterName returns the name of the key that holds the charge's counter.
	CounterName(charge Charge) string
}

// KeyHasher is implemented by stores that can keep keys out of the names of their counters.
type KeyHasher interface {
	// HashesKeys reports whether the store does so.
	HashesKeys() bool
	// AppendKeyHash appends the hash of a key, 43 bytes long.
	AppendKeyHash(dst []byte, key string) []byte
}

// AlgorithmChecker is implemented by stores that do not go with every algorithm.
type AlgorithmChecker interface {
	// CheckAlgorithm reports why a counter cannot be kept so, in words for an operator.
	CheckAlgorithm(a Algorithm) error
}

// Describer is implemented by stores on servers that tell something of themselves.
type Describer interface {
	// Describe asks the server. Of several, Memory is that of the fullest, and ClockOffset that
	// of the one that is farthest off. It returns errors as Take does.
	Describe(ctx context.Context) (Description, error)
}

// Description is what a server says of itself. What is empty is not known.
type Description struct {
	Version string // such as "redis 7.0.15"
	Mode    string // "standalone" or "cluster"
	// The server's clock less this process's, as far as a round trip tells.
	ClockOffset time.Duration
	Memory      *ServerMemory // nil: the user may not know
}

// ServerMemory is the memory of a server.
type ServerMemory struct {
	Used, Max int64  // in bytes; Max is 0 without a maximum
	Policy    string // what is dropped when it is full, as the server calls it
}

// Evicts reports whether the server drops counters when its memory is full.
func (m *ServerMemory) Evicts() bool { return m.Max > 0 && m.Policy != "" && m.Policy != "noeviction" }

// Share returns how much of the memory is used, 0 to 1 and a little more; 0 without a maximum.
func (m *ServerMemory) Share() float64 {
	if m.Max <= 0 {
		return 0
	}
	return float64(m.Used) / float64(m.Max)
}

// Instancer is implemented by stores that know how many processes use them.
type Instancer interface {
	// Attend says that this process is there, for the seconds to come, and returns how
	// many are.
	Attend(ctx context.Context) (int64, error)
	// Leave takes that back.
	Leave(ctx context.Context) error
}

// Algorithm is a way to keep the history of a key. Each has a twin in package
// lua, under the same name, that makes the same decisions. What returns a History may have
// written to the one it was given, as append does: that one is of no use any more.
//
// It has further methods where there is need: Check() error tells what is wrong
// with its options, CheckPolicy(Policy) error what is wrong with a policy that is
// valid by itself, and AtOnce(Policy) int64 how many units may pass at once if
// that is not the limit. Its other properties are in the table of facts.go. No other
// package can have an algorithm, for a store on Redis needs the twin.
type Algorithm interface {
	// Name is the word for it in scripts and names of counters, and in configuration,
	// where Layers are slices.
	Name() string
	// Options are what the Lua twin has to know beyond the policies.
	Options() []int64

	// Look reports whether c fits, and sets Allowed, Limit and Remaining (below 0
	// when the limit was lowered) of each policy's decision.
	Look(h History, now int64, c *Charge, ds []Decision) bool
	// Spend books c.Cost at now, forgets what is older than Longest(c), and completes the
	// decisions that Look began.
	Spend(h History, now int64, c *Charge, ds []Decision) History
	// Explain completes the decisions that Look began for a charge that is not
	// spent. With repair it may correct units that lie in the future; without, it
	// changes nothing.
	Explain(h History, now int64, c *Charge, ds []Decision, repair bool) History
	// Settle is Store.Settle on this history; delta is not 0.
	Settle(h History, now int64, c *Charge, at, delta int64) History
	// Empty reports whether h has no unit, whatever the limits and the time.
	Empty(h History) bool

	facts() *Facts
}

// FieldsReader is implemented by algorithms whose twin reads a hash field by field.
type FieldsReader interface {
	// FieldsRead returns how many fields a decision that is allowed reads.
	FieldsRead(h History, now int64, c *Charge) int
}

// Keeper is implemented by algorithms that may keep more than the last charge looks at.
type Keeper interface {
	// Until returns the time in ms until which that matters; 0 if there is nothing else.
	Until(h History) int64
}

// CheckCharges returns an error that wraps ErrInvalid unless the charges make up
// a request that a store can decide on.
func CheckCharges(charges []Charge) error {
	for i := range charges {
		c := &charges[i]
		switch {
		case c.Algorithm == nil:
			return fmt.Errorf("zone %q: %w: no algorithm", c.Zone, ErrInvalid)
		case c.Cost < 0:
			return fmt.Errorf("zone %q: %w: cost %d is negative", c.Zone, ErrInvalid, c.Cost)
		case len(c.Policies) == 0:
			return fmt.Errorf("zone %q: %w: no limit", c.Zone, ErrInvalid)
		case len(c.Fields)%2 != 0, len(c.Fields) > 2*MaxFields:
			return fmt.Errorf("zone %q: %w: fields: %d words are not %d pairs of name and value at most", c.Zone, ErrInvalid, len(c.Fields), MaxFields)
		}
		if a, ok := c.Algorithm.(interface{ Check() error }); ok {
			if err := a.Check(); err != nil {
				return fmt.Errorf("zone %q: %w: %s: %w", c.Zone, ErrInvalid, c.Algorithm.Name(), err)
			}
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
		if isNative(c) && CountPolicies(charges) > 1 {
			return fmt.Errorf("zone %q: %w: gcra: native and a second limit or zone cannot be combined", c.Zone, ErrInvalid)
		}
		for j := range i {
			o := &charges[j]
			if o.Zone == c.Zone && o.Key == c.Key && o.Algorithm.Name() == c.Algorithm.Name() {
				return fmt.Errorf("zone %q: %w: the same counter twice in one request", c.Zone, ErrInvalid)
			}
		}
	}
	return nil
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

// CheckPolicy reports why the algorithm cannot keep a policy that is valid by
// itself, in words for an operator.
func CheckPolicy(a Algorithm, p Policy) error {
	if a, ok := a.(interface{ CheckPolicy(Policy) error }); ok {
		return a.CheckPolicy(p)
	}
	return nil
}

// CheckPack reports why counters of algorithm a with this number of policies cannot be
// packed, in words for an operator. It returns nil if expected, the number of keys, is 0:
// counters are not packed then.
func CheckPack(a Algorithm, policies int, expected int64) error {
	if expected == 0 {
		return nil
	}
	if expected < 0 {
		return fmt.Errorf("pack %d is negative; write how many keys are expected", expected)
	}
	most, err := a.facts().Pack(a)
	if err != nil {
		return fmt.Errorf("pack %d: %w", expected, err)
	}
	if policies > most {
		return fmt.Errorf("pack %d: %d limits are too many, %d is the most with %s; take out some, or pack", expected, policies, most, a.Name())
	}
	return nil
}

// AtOnce returns how many units may pass at once.
func AtOnce(a Algorithm, p Policy) int64 {
	if a, ok := a.(interface{ AtOnce(Policy) int64 }); ok {
		return a.AtOnce(p)
	}
	return p.Limit
}

// CheckSettle returns an error that wraps ErrInvalid unless a store can settle
// delta on the charge.
func CheckSettle(c Charge, delta int64) error {
	if delta < -MaxProduct || delta > MaxProduct {
		return fmt.Errorf("zone %q: %w: delta %d is beyond 2^53", c.Zone, ErrInvalid, delta)
	}
	if isNative(&c) {
		return fmt.Errorf("zone %q: %w: gcra: native counts cannot be settled", c.Zone, ErrInvalid)
	}
	return CheckCharges([]Charge{c})
}

// CheckReset returns an error that wraps ErrInvalid unless the charge names a
// counter.
func CheckReset(c Charge) error {
	if c.Algorithm == nil {
		return fmt.Errorf("zone %q: %w: no algorithm", c.Zone, ErrInvalid)
	}
	if err := CheckPack(c.Algorithm, 0, c.Pack); err != nil {
		return fmt.Errorf("zone %q: %w: %w", c.Zone, ErrInvalid, err)
	}
	return nil
}

// CountPolicies returns how many decisions a request of these charges gets.
func CountPolicies(charges []Charge) int {
	n := 0
	for i := range charges {
		n += len(charges[i].Policies)
	}
	return n
}

// MakeDecisions returns a slice with one Decision per policy of charges. It reuses the
// array of room if that is large enough. The contents are unspecified.
func MakeDecisions(charges []Charge, room []Decision) []Decision {
	return slices.Grow(room[:0], CountPolicies(charges))[:CountPolicies(charges)]
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
