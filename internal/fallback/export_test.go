package fallback

import (
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Heartbeat sets how often processes register, until undo is called.
func Heartbeat(every time.Duration) (undo func()) {
	old := heartbeatInterval
	heartbeatInterval = every
	return func() { heartbeatInterval = old }
}

// Note keeps what the store is said to have decided.
func (g *Guard) Note(asked, heard int64, charges []window.Charge, ds []window.Decision) {
	g.table().note(asked, heard, charges, ds)
}

// Known returns what is known of a counter at a time, and Keys of how many.
func (g *Guard) Known(now int64, c window.Charge) int64 {
	k := g.table()
	hash := k.hash(&c)
	if e := k.shard(hash).find(hash); e != nil && e.until > now {
		return e.use.units()
	}
	return 0
}

// Keys returns on how many counters something is known, or was.
func (g *Guard) Keys() (n int) {
	k := g.table()
	for i := range k.shards {
		for j := range k.shards[i].sets {
			for _, e := range k.shards[i].sets[j] {
				if e.hash != 0 {
					n++
				}
			}
		}
	}
	return n
}

// MostKeys is how many keys may be known.
const MostKeys = shardCount * setCount * ways

// BoundOwed bounds the counters on which something is owed.
func (g *Guard) BoundOwed(most int64) { g.owed.most = most }

// Limits of what is booked in the background.
const (
	BookMost  = bookMost
	BookPause = bookPause
)

// BoundDebtors bounds the counters that are booked in the background.
func (g *Guard) BoundDebtors(most int) { g.debtors.Most = most }
