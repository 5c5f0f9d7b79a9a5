package batch

import (
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// waiter is a request that waits or is in flight.
type waiter struct {
	charges []window.Charge
	result  window.Result // when it is answered; until then, room for the decisions
	done    chan struct{} // gets one value when it neither waits nor is in flight any more

	// Guarded by the lock of the Batcher, until then.
	state        waiterState
	until        time.Duration // when its time is up
	older, newer *waiter       // of those that wait or are in flight
}

// waiterState is where a waiter is. All but the first two end it.
type waiterState int8

const (
	waits      waiterState = iota
	inFlight               // sent, or about to be
	answered               // has its result
	unsent                 // its caller has gone, and it will not be sent
	unanswered             // its caller has gone
)

// take copies a result into a waiter in flight: the batch reuses the memory of r.
func (w *waiter) take(r window.Result) {
	if r.Err != nil {
		w.result = window.Result{Err: r.Err}
		return
	}
	w.result.Decisions = append(w.result.Decisions[:0], r.Decisions...)
}

// queue enqueues a waiter, and starts a batch if due. It reports whether there was
// room.
func (b *Batcher) queue(w *waiter) bool {
	now := time.Since(b.began)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == QueueLength {
		return false
	}
	b.waiting = append(b.waiting, w)
	w.state, w.until = waits, now+b.env.Timeout
	w.older, w.newer = b.newest, nil
	if b.newest == nil {
		b.oldest = w
	} else {
		b.newest.newer = w
	}
	b.newest = w
	if !b.timed {
		b.timed = true
		b.timer.Reset(b.env.Timeout)
	}
	b.start(now)
	return true
}

// end moves a waiter that waits or is in flight to its last state. b.mu must be held. The
// caller must send to w.done.
func (b *Batcher) end(w *waiter, state waiterState) {
	w.state = state
	if w.older == nil {
		b.oldest = w.newer
	} else {
		w.older.newer = w.newer
	}
	if w.newer == nil {
		b.newest = w.older
	} else {
		w.newer.older = w.older
	}
}

// leave gives up the waiter of a caller whose ctx has ended.
func (b *Batcher) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveUp(w)
}

// giveUp ends a waiter, unless that has happened. b.mu must be held.
func (b *Batcher) giveUp(w *waiter) {
	switch w.state {
	case waits:
		b.end(w, unsent)
	case inFlight:
		b.end(w, unanswered)
	default:
		return
	}
	w.done <- struct{}{}
}

// expire ends the waiters whose time is up.
func (b *Batcher) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.began)
	for w := b.oldest; w != nil; w = b.oldest {
		if w.until > now {
			b.timer.Reset(w.until - now)
			return
		}
		b.giveUp(w)
	}
	b.timed = false
}
