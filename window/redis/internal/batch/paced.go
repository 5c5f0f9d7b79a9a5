package batch

import "time"

// highLatency is the distance above which requests do not wait for a batch to come back: that wait takes
// half a round trip. Instead, batches are sent at even intervals, so that each connection of
// the pool has one in flight. A server that is near answers two full batches sooner.
const highLatency = 3 * time.Millisecond

// leastInterval is the shortest of these intervals: each batch costs all sides some time.
const leastInterval = 250 * time.Microsecond

// startPaced is start for a server that is far away. Two batches that are overdue may be all
// that is sent to a server that has stopped answering. b.mu must be held.
func (b *Batcher) startPaced(now time.Duration) {
	trip, most := b.env.RTT(), b.env.MaxInFlight
	switch {
	case len(b.waiting) == 0 || b.runners >= most:
		return
	case b.runners >= MinInFlight && len(b.inFlight) > 0 && now-b.inFlight[0].since > 2*trip:
		return
	}
	if n := len(b.inFlight); n > 0 {
		b.sent = max(b.sent, b.inFlight[n-1].since)
	}
	if next := b.sent + max(trip/time.Duration(most), leastInterval); b.runners > 0 && now < next {
		if !b.planned {
			b.planned = true
			b.next.Reset(next - now)
		}
		return
	}
	b.sent = now
	b.runners++
	go b.runner()
}

// startPlanned runs when a batch may be sent that had to wait.
func (b *Batcher) startPlanned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.planned = false
	b.start(time.Since(b.began))
}
