// Package leases hands out units that were taken ahead, without asking the server.
package leases

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Leases hand out units that were taken ahead, without asking the server.
//
// A lease is booked as spent when it is taken. It ends when its time is over or its units
// are used up. At that moment its used units are booked again and the others go back, in one
// step.
//
// Every unit is thus booked from before its use until a full window after it, so that leases
// never exceed the limit. This requires that a lease ends before its first booking leaves the
// window; see lifetime. What cannot be booked in time is a debt, see debts.
//
// The size of leases follows the rate. A counter that is asked for twice within a lifetime
// gets a lease. The next lease is twice as large if all units were used in time, and as large
// as what was used if not. No lease takes more than half of what the limit has left.
type Leases struct {
	env    Env
	Now    func() Clocks // tests may set it before the first call
	seed   maphash.Seed
	shards [64]leaseShard
	ends   sync.WaitGroup // bookings under way
	debts  debts
}

// lease is what is handed out. The lock of its holder, or of the debts, guards left and
// last; all else stays as it is.
type lease struct {
	charge    window.Charge
	decisions []window.Decision // when it was taken
	left      int64
	taken     Clocks        // before it was
	last      time.Duration // from then until units were handed out
	life      time.Duration // how long it may hand out units
	timer     *time.Timer
}

// Env is what leases need of their store. All functions may be called at the same time.
type Env struct {
	Now     func() Clocks
	Timeout time.Duration // of a call
	None    bool          // no charge gets a lease
	// Take decides on a request, together with others.
	Take func(context.Context, []window.Charge, []window.Decision) window.Result
	// Peek looks at the counters of requests.
	Peek func(context.Context, [][]window.Charge) []window.Result
	// Book books what was used of leases, gives the rest back, and returns an error for each.
	Book func(context.Context, []Booking) []error
	// Ping reports whether the server decides.
	Ping func(context.Context) error
	// Weight returns how long the server takes to decide on a request.
	Weight func([]window.Charge) int64
	// Fail returns the error of a request that was not sent.
	Fail func(context.Context, error) error
	// Report is called with units that were not booked in time.
	Report func(error)
}

// Booking is the end of a lease: Used units are booked now, and the units of the charge, which
// were booked at a time, go back.
type Booking struct {
	Charge   *window.Charge
	At, Used int64
}

// New returns leases of a store.
func New(env Env) *Leases {
	l := &Leases{env: env, Now: env.Now, seed: maphash.MakeSeed()}
	l.debts.init(l)
	return l
}

// lifetime returns how long a lease of the charge lives; 0 means that it gets none.
// Its end has to reach the server before the first booking leaves the window.
func (l *Leases) lifetime(c *window.Charge) time.Duration {
	if l.env.None {
		return 0
	}
	shortest := shortest(c)
	return min(c.Lease.TTL, shortest/2, shortest-l.env.Timeout)
}

func shortest(c *window.Charge) time.Duration {
	w := c.Policies[0].Window
	for _, p := range c.Policies {
		w = min(w, p.Window)
	}
	return w
}

// lives reports whether units may be handed out.
func (own *lease) lives(now Clocks) bool { return now.since(own.taken) < own.life }

// spend hands out units, and returns how many are left.
func (own *lease) spend(cost int64, now Clocks) int64 {
	own.left -= cost
	own.last = now.since(own.taken)
	return own.left
}

// decide returns the decisions on a request after which the lease has left units. It reuses
// the array of room if that is large enough. No lock is needed.
func (own *lease) decide(left int64, now Clocks, room []window.Decision) []window.Decision {
	room = append(room[:0], own.decisions...)
	for i := range room {
		room[i].Remaining += left
		room[i].ResetAfter = own.charge.Policies[i].Window + own.life - now.since(own.taken)
	}
	return room
}
