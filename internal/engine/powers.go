package engine

import (
	"context"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// IntoTaker is implemented by stores that need no memory for decisions.
type IntoTaker interface {
	// TakeInto is Store.Take. The decisions are written into dst if they fit there, such as
	// into those of an earlier request; else they get new memory.
	TakeInto(ctx context.Context, dst []window.Decision, charges []window.Charge) ([]window.Decision, error)
}

// TakeInto calls a store's TakeInto, or Take if it is no IntoTaker.
func TakeInto(ctx context.Context, store window.Store, dst []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	if s, ok := store.(IntoTaker); ok {
		return s.TakeInto(ctx, dst, charges)
	}
	return store.Take(ctx, charges)
}

// Stepper is implemented by stores whose clock moves only between requests. What is counted without denying is decided on
// within its request then.
type Stepper interface {
	// Step sets the clock, in Unix milliseconds.
	Step(now int64)
	// Time returns what the clock was set to.
	Time() int64
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
	Parts(charges []window.Charge, names []string) []string
	// PingPart is Pinger.Ping for a part: it decides on a counter that the part held when it
	// failed. It returns nil for a part that holds nothing.
	PingPart(ctx context.Context, name string) error
	// HasPart reports whether there is a part of a name, as far as is known. It does not wait.
	HasPart(name string) bool
}

// LocalAnswerer is implemented by stores that answer some requests without their server.
type LocalAnswerer interface {
	// AnswerLocally returns what Take would answer at once without asking the server, but as Peek does:
	// nothing is spent. It returns nil if Take would ask.
	AnswerLocally(charges []window.Charge) ([]window.Decision, Source)
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
	CounterName(charge window.Charge) string
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
	CheckAlgorithm(a window.Algorithm) error
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

// Ratio returns how much of the memory is used, 0 to 1 and a little more; 0 without a maximum.
func (m *ServerMemory) Ratio() float64 {
	if m.Max <= 0 {
		return 0
	}
	return float64(m.Used) / float64(m.Max)
}

// Instancer is implemented by stores that know how many processes use them.
type Instancer interface {
	// Register says that this process is there, for the seconds to come, and returns how
	// many are.
	Register(ctx context.Context) (int64, error)
	// Leave takes that back.
	Leave(ctx context.Context) error
}

// InstanceLister is implemented by Instancers that know their names.
type InstanceLister interface {
	// Instances returns the processes that have registered, from the one that did so longest ago on.
	Instances(ctx context.Context) ([]Instance, error)
}

// Instance is a process that uses a store.
type Instance struct {
	Name   string        // of its host, and something random
	Own    bool          // it is this one
	Silent time.Duration // since it registered last
}

// TotalsLister is implemented by stores that know which process holds how many units of window.Concurrent.
type TotalsLister interface {
	// Totals returns what each process holds of the charge's counter, in the order of their names. It returns errors as Take does.
	Totals(ctx context.Context, charge window.Charge) ([]Total, error)
}

// Total is what a process holds of a counter.
type Total struct {
	Instance string        // the name of the process; empty: the only one
	Units    int64         // 1 or more
	Age      time.Duration // for how long it has held any, without a break
	Silent   time.Duration // since the store has heard of the total
}

// Holder is implemented by stores that have to stay open for receipts.
type Holder interface {
	// Hold keeps the store open until Release, but no longer than a time after it was to be
	// closed: a window after the last decision there is nothing left to give back.
	Hold(longest time.Duration)
	// Release undoes one Hold.
	Release()
}

// BatchSettler is implemented by stores that settle many charges in one call.
type BatchSettler interface {
	// SettleBatch settles receipts of the store, each with its own verdict: error i is that of
	// settlement i, as of GiveBack and ChargeMore.
	SettleBatch(ctx context.Context, all []Settlement) []error
}

// SettleBatch settles receipts of a store: together if it is a BatchSettler, else one after the
// other. It returns an error, or nil, for each.
func SettleBatch(ctx context.Context, store window.Store, all []Settlement) []error {
	if s, ok := store.(BatchSettler); ok {
		return s.SettleBatch(ctx, all)
	}
	errs := make([]error, len(all))
	for i, s := range all {
		errs[i] = Settle(ctx, store, s.Charge, s.At, s.Delta)
	}
	return errs
}

// Settle corrects what a charge spent: a negative delta gives back units that were spent at a time,
// a positive one charges more.
func Settle(ctx context.Context, store window.Store, charge window.Charge, at, delta int64) error {
	if err := CheckSettle(charge, delta); err != nil || delta == 0 {
		return err
	}
	if delta < 0 {
		return store.GiveBack(ctx, charge, at, -delta)
	}
	return store.ChargeMore(ctx, charge, delta)
}
