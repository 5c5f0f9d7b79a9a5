// Package batch sends requests that come at the same time to a server together.
package batch

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// MaxWeight is the weight of the requests of a batch at most: a run of the script must not
	// keep others waiting for more than about 1 ms.
	MaxWeight = 128
	// QueueLength is the largest number of requests that wait for a batch.
	QueueLength = 8192
	// MinInFlight is the number of batches in flight at once: while the server works on one,
	// the next is written or the one before is read.
	MinInFlight = 2
	// minFollow is the smallest number of waiting requests that makes up a second batch. Fewer
	// wait for the first batch instead, since each batch costs all sides some time.
	minFollow = 8
	// stuckAfter is the age in flight after which a batch no longer makes others wait for
	// minFollow requests: its connection may be stuck.
	stuckAfter = 5 * time.Millisecond
)

// Env is what a Batcher needs of its store. All functions may be called at the same time.
type Env struct {
	// The longest that a request waits for its result.
	Timeout time.Duration
	// The number of batches in flight to a server that is far away, at most.
	MaxInFlight int
	// RTT returns how long a round trip to the server takes; 0: not known.
	RTT func() time.Duration
	// Distance returns the shortest of the last round trips, to which a busy server or
	// client has added least; 0: not known.
	Distance func() time.Duration
	// Weight returns how long the server takes to decide on a request.
	Weight func(charges []window.Charge) int64
	// Decider returns a function that decides on one batch after the other, each until ctx
	// ends. The results are good until the function is called again.
	Decider func() func(ctx context.Context, requests [][]window.Charge) []window.Result
	// Fail returns the error of a request whose caller has gone, because of err. sent tells
	// whether the server may have charged the request.
	Fail func(ctx context.Context, err error, sent bool) error
	// GiveUp is told the result of a request whose caller has gone. It must not retain it. Nil: none is told.
	GiveUp func(charges []window.Charge, r window.Result)
	// The error of a request that the queue has no room for.
	Busy error
}

// Batcher batches requests to one server that come at the same time.
//
// No request waits in order to be batched. If no batch is in flight, a request is sent at
// once. Otherwise it waits for the first of:
//
//   - that batch returns;
//   - max(minFollow, size of that batch) requests wait;
//   - that batch is older than stuckAfter.
//
// Two batches of equal size keep the server busy while the callers of the other one return;
// with a small batch the server would be done too soon. Servers that are far away are sent
// more batches at once, see startFar.
//
// Each batch is sent by a goroutine, which exits when the queue is empty or too short for a
// second batch. The batch ends within Env.Timeout. A request that finds nothing in flight is
// sent by its caller instead, which saves two goroutine switches: up to a third of the
// latency. All waiters share one timer: they have equal timeouts, so that they expire in
// order.
type Batcher struct {
	env     Env
	runner  func()      // run, as a value: go b.run() would make one each time
	began   time.Time   // from which times are counted
	waiters sync.Pool   // of those whose callers got their result
	timer   *time.Timer // runs expire

	mu       sync.Mutex // guards all below, and what waiters say; held for a few instructions
	waiting  []*waiter
	runners  int      // goroutines, and the caller who sends a request solo
	inFlight []*batch // in the order in which they were sent
	idle     []*batch
	oldest   *waiter // of those that wait or are in flight
	newest   *waiter
	timed    bool // the timer is under way

	next    *time.Timer   // runs startPlanned
	planned bool          // it is under way
	sent    time.Duration // when the last batch was sent; see startFar
}

// batch is some requests in flight. Its memory is reused for later batches. The lock of the
// Batcher guards waiters and since, which decide when the next batch is sent.
type batch struct {
	waiters  []*waiter
	since    time.Duration // when it was sent
	requests [][]window.Charge
	decide   func(context.Context, [][]window.Charge) []window.Result
	deadline *deadline
}

// New returns a Batcher. It has no goroutine while no request waits.
func New(env Env) *Batcher {
	b := &Batcher{env: env, began: time.Now()}
	b.runner = b.run
	b.timer = time.AfterFunc(time.Hour, b.expire)
	b.timer.Stop()
	b.next = time.AfterFunc(time.Hour, b.startPlanned)
	b.next.Stop()
	b.waiters.New = func() any { return &waiter{done: make(chan struct{}, 1)} }
	return b
}

// Take decides on one request. It returns the decisions in room if they fit.
//
// If ctx or the timeout ends before there is an answer, a batch may still read the charges. If
// ctx has ended before, nothing is sent.
func (b *Batcher) Take(ctx context.Context, charges []window.Charge, room []window.Decision) window.Result {
	if err := ctx.Err(); err != nil {
		return window.Result{Err: b.env.Fail(ctx, err, false)}
	}
	if own := b.trySolo(); own != nil {
		return b.solo(ctx, own, charges, room)
	}
	w := b.waiters.Get().(*waiter)
	w.charges, w.result.Decisions = charges, engine.MakeDecisions(charges, room)
	if !b.queue(w) {
		return window.Result{Err: b.env.Busy}
	}
	err := context.DeadlineExceeded
	select {
	case <-w.done:
	case <-ctx.Done():
		err = ctx.Err()
		b.leave(w)
		<-w.done
	}
	if w.state == unsent || w.state == unanswered {
		return window.Result{Err: b.env.Fail(ctx, err, w.state == unanswered)}
	}
	result := w.result
	w.charges, w.result = nil, window.Result{}
	b.waiters.Put(w)
	return result
}

// Load returns how many goroutines and callers send requests, and how many requests wait.
func (b *Batcher) Load() (runners, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runners, len(b.waiting)
}

// start starts a batch if those who wait may go. b.mu must be held.
func (b *Batcher) start(now time.Duration) {
	if b.env.Distance() > highLatency {
		b.startPaced(now)
		return
	}
	if b.runners == 0 || b.runners < MinInFlight && b.mayFollow(now) {
		b.runners++
		go b.runner()
	}
}

// mayFollow reports whether those who wait may go while others are in flight, or have just
// come back. b.mu must be held.
func (b *Batcher) mayFollow(now time.Duration) bool {
	if len(b.inFlight) == 0 {
		return len(b.waiting) >= minFollow
	}
	first := b.inFlight[0]
	return len(b.waiting) >= max(minFollow, len(first.waiters)) || now-first.since > stuckAfter
}

// run sends batches until the queue is empty or too short.
func (b *Batcher) run() {
	runtime.Gosched() // goroutines that are ready to run may ask first, and join the batch
	b.mu.Lock()
	own := b.ready()
	b.mu.Unlock()
	for b.fill(own) {
		// No caller waits longer than this.
		own.deadline = startDeadline(own.deadline, b.env.Timeout)
		b.deliver(own, own.decide(own.deadline, own.requests))
		own.deadline = own.deadline.stop()
		if len(own.waiters) > 1 {
			runtime.Gosched() // those who have their results run first, and may come again
		}
	}
}

// deliver gives the callers their results, but for those who have gone.
func (b *Batcher) deliver(own *batch, results []window.Result) {
	var gone []int // requests
	b.mu.Lock()
	b.inFlight = slices.DeleteFunc(b.inFlight, func(other *batch) bool { return other == own })
	for i, w := range own.waiters {
		if w.state == inFlight {
			b.end(w, answered)
			w.take(results[i])
		} else {
			own.waiters[i] = nil
			gone = append(gone, i)
		}
	}
	b.mu.Unlock()
	for _, i := range gone {
		if b.env.GiveUp != nil {
			b.env.GiveUp(own.requests[i], results[i])
		}
	}
	for _, w := range own.waiters {
		if w != nil {
			w.done <- struct{}{}
		}
	}
	clear(own.waiters)
	clear(own.requests)
}

// ready returns a batch that was delivered, or a new one. b.mu must be held.
func (b *Batcher) ready() *batch {
	last := len(b.idle) - 1
	if last < 0 {
		return &batch{decide: b.env.Decider()}
	}
	own := b.idle[last]
	b.idle = b.idle[:last]
	return own
}

// rest keeps a batch for later. b.mu must be held.
func (b *Batcher) rest(own *batch) {
	b.runners--
	b.idle = append(b.idle, own)
}

// fill fills a batch with the requests that fit into one call of the script, and reports
// whether there are any. If the queue is empty or too short, it ends the batch.
func (b *Batcher) fill(own *batch) bool {
	own.waiters, own.requests = own.waiters[:0], own.requests[:0]
	b.mu.Lock()
	defer b.mu.Unlock()
	own.since = time.Since(b.began)
	if len(b.inFlight) == 0 || b.env.Distance() > highLatency || b.mayFollow(own.since) {
		b.collect(own, b.portion())
	}
	if len(own.waiters) == 0 {
		b.rest(own)
		return false
	}
	b.inFlight = append(b.inFlight, own)
	b.start(own.since)
	return true
}

// portion returns the number of waiting requests to send now: half of all that wait or are in
// flight, if the rest is enough for another batch; else all that wait. b.mu must be held.
func (b *Batcher) portion() int {
	all := len(b.waiting)
	for _, other := range b.inFlight {
		all += len(other.waiters)
	}
	if len(b.waiting)-all/2 < minFollow {
		return len(b.waiting)
	}
	return all / 2
}

// collect moves at most `most` requests, oldest first, from the queue to a batch. b.mu must be
// held.
func (b *Batcher) collect(own *batch, most int) {
	weight, n := int64(0), 0
	for ; n < len(b.waiting) && len(own.waiters) < most; n++ {
		w := b.waiting[n]
		more := b.env.Weight(w.charges)
		if len(own.waiters) > 0 && weight+more > MaxWeight {
			break
		}
		if w.state == waits {
			weight += more
			w.state = inFlight
			own.waiters, own.requests = append(own.waiters, w), append(own.requests, w.charges)
		}
	}
	rest := copy(b.waiting, b.waiting[n:])
	clear(b.waiting[rest:])
	b.waiting = b.waiting[:rest]
}
