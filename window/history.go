package window

import (
	"encoding/binary"
	"time"
)

// History is what is kept of a key in this process, in a layout of its algorithm's. It
// is bytes, so that a garbage collector has nothing to look through, and so that few of
// them lie together wherever a store wants them. An empty one is that of a new key.
//
// Times are milliseconds on the store's clock, from 0 to 2^48. A clock may step back.
// Units spent in the future of now count as spent just now. A denial that may write stores
// these units at now, so that a key does not stay locked for longer than one window.
type History []byte

// Look reports whether c fits, and sets Allowed, Limit and Remaining (below 0 when the limit was
// lowered) of each policy's decision.
func (h History) Look(now int64, c *Charge, ds []Decision) bool {
	return c.Algorithm.look(h, now, c, ds)
}

// Spend books c.Cost at now, forgets what is older than the charge looks back, and completes the
// decisions that Look began. Like append it may write to h, and returns what to keep instead.
func (h History) Spend(now int64, c *Charge, ds []Decision) History {
	return c.Algorithm.spend(h, now, c, ds)
}

// Explain completes the decisions that Look began for a charge that is not spent. With repair it
// may correct units that lie in the future, and returns what to keep; without, it changes nothing.
func (h History) Explain(now int64, c *Charge, ds []Decision, repair bool) History {
	return c.Algorithm.explain(h, now, c, ds, repair)
}

// GiveBack is Store.GiveBack on this history, of 1 unit or more. It returns the new history.
func (h History) GiveBack(now int64, c *Charge, at, units int64) History {
	return c.Algorithm.giveBack(h, now, c, at, units)
}

// ChargeMore is Store.ChargeMore on this history, of 1 unit or more. It returns the new history.
func (h History) ChargeMore(now int64, c *Charge, units int64) History {
	return c.Algorithm.chargeMore(h, now, c, units)
}

// Empty reports whether h has no unit, whatever the limits and the time.
func (h History) Empty(a Algorithm) bool { return a.empty(h) }

// Newest returns the time of the newest unit in Unix ms. It reports false for a history without
// units, and for algorithms that do not forget what no window needs.
func (h History) Newest(a Algorithm) (at int64, ok bool) { return a.newest(h) }

// Until returns the time in ms until which matters what a charge does not look at; 0 if there is
// nothing else.
func (h History) Until(a Algorithm) int64 { return a.until(h) }

// numbers reads a History, or a part of one, of 8 bytes each.
type numbers History

func (b *numbers) next() int64 {
	n := binary.LittleEndian.Uint64(*b)
	*b = (*b)[8:]
	return int64(n)
}

func (h History) appendNumbers(all ...int64) History {
	for _, n := range all {
		h = binary.LittleEndian.AppendUint64(h, uint64(n))
	}
	return h
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
