package window

import "slices"

// Zset is the exact sliding-window log: every unit is kept with its millisecond
// until it leaves the longest window. In Redis it is a sorted set, with a member
// for each one, ten, hundred, ... that a charge costs: for units that come one by
// one, memory grows with the limit.
//
// The promise: in every interval (t-Window, t] at most Limit units pass, and a
// charge is denied only if it would break that.
type Zset struct{ ofRecords }

// Name implements Algorithm.
func (Zset) Name() string { return "zset" }

func (Zset) spend(h History, now int64, c *Charge, ds []Decision) History {
	return addBetween(records(h), now, c.Cost, c).complete(now, c, ds)
}

func (Zset) chargeMore(h History, now int64, c *Charge, units int64) History {
	return History(addBetween(records(h), now, units, c))
}

// addBetween books n units at now, before any that lie in the future.
func addBetween(h records, now, n int64, c *Charge) records {
	edge := now - c.Longest()
	if newest, _ := h.last(); newest <= now {
		return h.add(now, n, edge)
	}
	all := h.all()
	i := slices.IndexFunc(all, func(r logRecord) bool { return r.at > now })
	all = slices.Insert(all, i, logRecord{now, n})
	h = h[:0]
	for _, r := range all {
		h = h.add(r.at, r.units, edge)
	}
	return h
}
