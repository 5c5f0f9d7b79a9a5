package leases

import (
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/batch"
)

// closing is the weight of the leases that are booked in one round trip when the store
// closes: some 10 ms of the server's time.
const closing = 8 * batch.MaxWeight

// Drain ends all leases, and returns when they are booked, or are debts; those that are being
// taken, too. There are no more leases after it.
func (l *Leases) Drain() {
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		shard.closed = true
		shard.mu.Unlock()
	}
	var all []*lease
	var fetches []*fetch
	l.each(func(e *Holder) {
		e.gone = true
		if e.lease != nil {
			all = append(all, e.drop())
		}
		if e.fetch != nil {
			fetches = append(fetches, e.fetch)
		}
	})
	for len(all) > 0 {
		n, weight := 0, int64(0)
		for n < len(all) && weight < closing {
			weight += l.env.Weight([]window.Charge{all[n].charge})
			n++
		}
		away := l.bookEach(all[:n])
		if all = all[n:]; away != nil { // a store that closes does not wait for each in turn
			for _, own := range all {
				l.debts.add(own, away)
			}
			break
		}
	}
	for _, f := range fetches {
		<-f.done
	}
	l.ends.Wait()
}

// Close books what is left, and reports what cannot be booked. It comes after Drain.
func (l *Leases) Close() { l.debts.close() }
