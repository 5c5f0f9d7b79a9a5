package window

// Log is the exact sliding-window log like Zset, packed: two to four bytes per
// event, and one to four for a cost from 2 to 100 million. In Redis it is a chunk of
// records, or a list of them; see logchunk.lua and logring.lua for the layout, and recordchunks.go for what
// differs here.
//
// The promise is that of Zset. When the clock steps back, units that lie in the
// future are stored as spent just now by any charge that is taken.
type Log struct{ ofRecords }

// Name implements Algorithm.
func (Log) Name() string { return "log" }

func (Log) spend(h History, now int64, c *Charge, ds []Decision) History {
	return addBehind(records(h), now, c.Cost, c).complete(now, c, ds)
}

func (Log) settle(h History, now int64, c *Charge, at, delta int64) History {
	if delta < 0 {
		return History(records(h).giveBack(at, -delta))
	}
	return History(addBehind(records(h), now, delta, c))
}

// addBehind books n units at now, to where it moves those that lie in the future.
func addBehind(h records, now, n int64, c *Charge) records {
	if newest, _ := h.last(); newest > now {
		h = h.pullBack(now)
	}
	return h.add(now, n, now-Longest(c))
}
