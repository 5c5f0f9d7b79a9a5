package slidingwindow

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/inflight"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// reserve makes a charge spend what the answer is thought to cost. That is at most the smallest limit,
// so that a request can pass at all.
func (z *Zone) reserve(r *http.Request, c *window.Charge) {
	s := z.Settle
	if c.Cost == 0 {
		return
	}
	if s.fields != nil {
		c.Cost = s.estimate(r, c.Cost)
	}
	smallest := int64(math.MaxInt64)
	for _, p := range c.Policies {
		smallest = min(smallest, p.Limit)
	}
	c.Cost = max(1, min(c.Cost, smallest))
}

// estimate returns what an answer may cost at most by the body of its request, or otherwise.
func (s *Settle) estimate(r *http.Request, otherwise int64) int64 {
	output, size, found := s.fields.Read(r)
	result := usage.Result{Output: output}
	if s.Usage == "" {
		result = usage.Result{Input: output}
	}
	if s.perToken > 0 {
		result.Input = (size + s.perToken - 1) / s.perToken
	}
	units := s.weights.Units(result)
	if !found {
		return max(units, otherwise)
	}
	return units
}

// chargedBefore reports whether an earlier handler has charged the request in a zone.
func (req *request) chargedBefore(z *Zone) bool {
	earlier, _ := req.vars[requestVar].(*request)
	for ; earlier != nil; earlier = earlier.previous {
		if earlier.allowed && earlier.decisions != nil && slices.ContainsFunc(earlier.zones, func(other *Zone) bool { return other.use == z.use }) {
			return true
		}
	}
	return false
}

const (
	// settleTogether is how many settlements go to the store together at most.
	settleTogether = 512
	// settleQueue is how many wait for that at most. Further ones are made by their requests.
	settleQueue = 8192
	// landingLast is the longest that a denied request waits for units that come back.
	landingLast = 250 * time.Millisecond
)

// receipt is that of a charge in a zone.
type receipt struct {
	engine.Receipt
	zone    *Zone
	counter uint64        // see inflight.Receipts
	decided time.Duration // in uptime
}

// settler settles the receipts of a guard. Those of a remote store go together, in the background:
// while some are on their way the next ones gather.
type settler struct {
	guard    *guard
	inFlight *inflight.Receipts

	mu    sync.Mutex // guards all below; held for a few instructions
	queue []settling
	idle  chan struct{} // closed when nothing is queued or on its way; nil then
}

// settling is a receipt that is being settled.
type settling struct {
	receipt *receipt
	engine.Settlement
	done chan struct{} // closed when it is settled; nil: nobody waits
}

// use makes the settler ready. Without it a guard has nothing to settle.
func (s *settler) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight == nil {
		s.inFlight = inflight.New()
	}
}

// unsettled returns the places of charges that get receipts.
func (h *Handler) unsettled(req *request) (places []int) {
	for i, z := range req.zones {
		if z.settles() {
			places = append(places, i)
		}
	}
	return places
}

// receipts returns those of a request that was admitted, for zones that settle.
func (h *Handler) receipts(req *request) []receipt {
	if len(req.decisions) == 0 {
		return nil // nobody decided
	}
	var all []receipt
	for i, z := range req.zones {
		if !z.settles() || req.charges[i].Cost == 0 {
			continue
		}
		if all == nil {
			all = make([]receipt, 0, len(req.zones)-i)
		}
		c, d := &req.charges[i], &req.decisionsOf(i)[0]
		all = append(all, receipt{zone: z, counter: h.guard.settler.inFlight.Counter(c), decided: uptime.Now()})
		r := &all[len(all)-1]
		r.Charge, r.At, r.Former, r.Place, r.Unsure = *c, d.At, d.Former, req.place, req.unsure
		r.Charge.Fields = nil
		h.guard.settler.admit(r)
	}
	return all
}

// admit has the store and its guard stay open for a receipt.
func (s *settler) admit(r *receipt) {
	s.guard.hold(&r.Charge)
	s.inFlight.Change(r.counter, 1, 0)
}

// settle makes units the cost of a receipt's charge. If these are more than were reserved and are on their
// way, it returns a channel that is closed once they are there.
func (s *settler) settle(r *receipt, units int64) (done chan struct{}) {
	own, ok := r.Settle(units)
	if !ok {
		return nil
	}
	r.zone.top.Charged(r.Charge.Key, units)
	if own.Delta < 0 {
		s.inFlight.Change(r.counter, -1, 1)
	} else {
		s.inFlight.Change(r.counter, -1, 0)
	}
	if own.Delta > 0 {
		done = make(chan struct{})
	}
	one := settling{r, own, done}
	if s.guard.fallback == nil || own.Place == engine.InProcess || own.Delta == 0 || !s.enqueue(one) {
		s.settleNow([]settling{one})
	}
	return done
}

// enqueue has a settlement made together with others. It reports whether there was room.
func (s *settler) enqueue(one settling) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= settleQueue {
		return false
	}
	s.queue = append(s.queue, one)
	if s.idle == nil {
		s.idle = make(chan struct{})
		go s.run()
	}
	return true
}

// run settles what is queued.
func (s *settler) run() {
	var batch []settling
	for {
		s.mu.Lock()
		n := min(len(s.queue), settleTogether)
		batch = append(batch[:0], s.queue[:n]...)
		rest := copy(s.queue, s.queue[n:])
		clear(s.queue[rest:])
		s.queue = s.queue[:rest]
		if n == 0 {
			close(s.idle)
			s.idle, s.queue = nil, nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.settleNow(batch)
	}
}

// drain waits until nothing is queued or on its way, but no longer than a time.
func (s *settler) drain(longest time.Duration) {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	if idle == nil {
		return
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// settleNow settles a batch. Clients may go: the context of no request ends it.
func (s *settler) settleNow(batch []settling) {
	all := make([]engine.Settlement, len(batch))
	for i := range batch {
		all[i] = batch[i].Settlement
	}
	var errs []error
	if s.guard.fallback != nil {
		errs = s.guard.fallback.SettleBatch(context.Background(), all)
	} else {
		errs = engine.SettleBatch(context.Background(), s.guard.store, all)
	}
	for i := range batch {
		s.settled(&batch[i], errs[i])
	}
}

// settled notes how a settlement went.
func (s *settler) settled(one *settling, err error) {
	r, counters := one.receipt, one.receipt.zone.counters.settled
	switch {
	case err == nil:
		counters.kept.Add(float64(r.Charge.Cost + min(0, one.Delta)))
		counters.givenBack.Add(float64(max(0, -one.Delta)))
		counters.excess.Add(float64(max(0, one.Delta)))
		counters.seconds.Observe((uptime.Now() - r.decided).Seconds())
	case errors.Is(err, window.ErrUnknown):
		counters.unknown.Inc()
	default:
		counters.failed.Inc()
	}
	if err != nil {
		counters.lost.Add(float64(max(0, one.Delta)))
		s.guard.logUnsettled(r.zone, one.Delta, err)
	}
	if one.Delta < 0 {
		s.inFlight.BacksOf(r.counter).Add(1)
		s.inFlight.Change(r.counter, 0, -1)
	}
	s.guard.release()
	if one.done != nil {
		close(one.done)
	}
}

// logUnsettled tells the operator, once a minute at most, of units that stay as they were charged.
func (g *guard) logUnsettled(z *Zone, delta int64, cause error) {
	if !g.unsettledLog.Due(time.Minute) {
		return
	}
	log := storestate.Logger(g.store.String()).With(zap.String("zone", z.Name))
	if delta < 0 {
		log.Warn("units of an answered request could not be given back; they count for one window", zap.Error(cause))
	} else {
		log.Warn("units that an answer cost above what was reserved could not be charged", zap.Int64("units", delta), zap.Error(cause))
	}
}

// tries bounds how often a request is decided on: each time but the first because units came back.
const tries = 8

// decideSettled is decide for a handler with zones that settle. A denied request is decided on again
// if units came back in a zone that denies it since it was sent, or are about to: a client that has
// its answer has its unit back. While other receipts of the counter are not settled, room may come
// back before the limit tells, so that such a denial holds for a second at most.
func (h *Handler) decideSettled(ctx context.Context, req *request) error {
	flying := h.guard.settler.inFlight
	var room [4]uint64
	for n := 1; ; n++ {
		before := room[:0]
		for i, z := range req.zones {
			before = append(before, 0)
			if z.settles() {
				before[i] = flying.BacksOf(flying.Counter(&req.charges[i])).Load()
			}
		}
		err := h.decide(ctx, req)
		if err != nil || req.allowed {
			return err
		}
		came := false
		for i, z := range req.zones {
			if z.settles() && !window.Allowed(req.decisionsOf(i)) {
				counter := flying.Counter(&req.charges[i])
				came = flying.Wait(ctx, counter, landingLast) || flying.BacksOf(counter).Load() != before[i] || came
			}
		}
		if !came || n == tries || ctx.Err() != nil {
			break
		}
	}
	for i, z := range req.zones {
		if z.CountIf == nil || !flying.Any(flying.Counter(&req.charges[i])) {
			continue
		}
		for j := range req.decisionsOf(i) {
			if d := &req.decisionsOf(i)[j]; !d.Allowed && d.RetryAfter != window.Never {
				d.RetryAfter = min(d.RetryAfter, time.Second)
				d.EffectiveWindow = min(d.EffectiveWindow, time.Second)
			}
		}
	}
	return nil
}

// seekLast is how many whole answers of a zone may tell no cost, from the first one on, before the log
// says so.
const seekLast = 100

// seeking notices a zone with settle that never finds what it looks for.
type seeking struct {
	found  atomic.Bool
	missed atomic.Int64
}

// note notes an answer without an error, and why it did not tell its cost, if so. An answer that was cut off says nothing
// about those that are not.
func (s *seeking) note(logger *zap.Logger, z *Zone, missing usage.Reason) {
	switch {
	case s.found.Load() || missing == usage.Aborted:
	case missing == "":
		s.found.Store(true)
	case s.missed.Add(1) == seekLast:
		logger.Warn("answers of a zone with settle never tell what they cost; on_missing decides",
			zap.String("zone", z.Name), zap.Int("answers", seekLast), zap.String("last_reason", string(missing)))
	}
}
