package window

import "math"

// Concurrent counts requests at the same time: a charge holds its units from when it is admitted
// until Store.GiveBack. The limit of its only policy is how many units may be held at once.
//
// In Redis it is a hash with a field for each process, which has the total that the process holds. The
// window of the policy is the lease: what a process holds is free once the process was silent for as
// long. See lua/concurrent.lua.
//
// The promise: the units held by processes that are heard of are at most the limit, whatever is lost, doubled or
// late on the way. A process that was silent for a lease, or of which the server has lost the total, writes its
// total before it takes more: until then the others may take what it holds.
//
// Source: total counts by replica as in the state-based counters of Shapiro, Preguiça, Baquero and Zawirski,
// "A comprehensive study of convergent and commutative replicated data types", INRIA RR-7506, 2011, with leases
// as of Gray and Cheriton, "Leases", SOSP 1989.
type Concurrent struct{ usual }

// forever is the time in ms of what never expires.
const forever = math.MaxInt64 / 2

var concurrentFacts = Facts{
	Probe: Concurrent{}, Word: "concurrent", Held: true,
	Weight: func(c *Charge) int64 { return perLimit(c, 1) },
	Lease:  never, Pack: neverPacked,
}

// Name implements Algorithm.
func (Concurrent) Name() string { return "concurrent" }

func (Concurrent) facts() *Facts { return &concurrentFacts }

// held reads a history: since when units are held without a break, in Unix ms, and how many.
func held(h History) (since, units int64) {
	if len(h) == 0 {
		return 0, 0
	}
	rest := numbers(h)
	return rest.next(), rest.next()
}

// Held returns the units that a history of Concurrent holds, and since when it holds any, in Unix ms.
func (h History) Held() (units, since int64) {
	since, units = held(h)
	return units, since
}

// hold returns a history that holds a number of units.
func hold(h History, now, since, units int64) History {
	if since == 0 {
		since = now
	}
	return h[:0].appendNumbers(since, units)
}

func (Concurrent) look(h History, now int64, c *Charge, ds []Decision) bool {
	_, units := held(h)
	return look(now, c, ds, func(int) int64 { return units })
}

func (Concurrent) spend(h History, now int64, c *Charge, ds []Decision) History {
	since, units := held(h)
	for i := range ds {
		ds[i].Remaining -= c.Cost
	}
	return hold(h, now, since, units+c.Cost)
}

func (Concurrent) explain(h History, _ int64, c *Charge, ds []Decision, _ bool) History {
	for i := range ds {
		if d := &ds[i]; !d.Allowed && c.Cost > d.Limit {
			d.RetryAfter = Never
		}
		ds[i].Remaining = max(0, ds[i].Remaining)
	}
	return h
}

func (Concurrent) giveBack(h History, now int64, _ *Charge, _, back int64) History {
	since, units := held(h)
	if units <= back {
		return nil
	}
	return hold(h, now, since, units-back)
}

func (Concurrent) chargeMore(h History, now int64, _ *Charge, more int64) History {
	since, units := held(h)
	return hold(h, now, since, units+more)
}

func (Concurrent) empty(h History) bool { return len(h) == 0 }

func (Concurrent) until(h History) int64 {
	if len(h) == 0 {
		return 0
	}
	return forever
}
