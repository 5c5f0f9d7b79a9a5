// Package settler settles receipts of charges: those of a remote store together, and in the background.
package settler

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/inflight"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// mostTogether is how many settlements go to the store together at most.
	mostTogether = 512
	// mostQueued is how many wait for that at most. Further ones are made by their requests.
	mostQueued = 8192
)

// Settler settles the receipts of a store. Those of a remote store go together, in the background:
// while some are on their way the next ones gather. It is safe for concurrent use after Use.
type Settler struct {
	store    window.Store
	fallback *fallback.Guard // nil for a store that cannot be away
	hold     func(*window.Charge)
	release  func()
	inFlight *inflight.Receipts
	log      uptime.Rare // of receipts that could not be settled

	mu    sync.Mutex // guards all below; held for a few instructions
	queue []settling
	idle  chan struct{} // closed when nothing is queued or on its way; nil then
}

// settling is a receipt that is being settled.
type settling struct {
	receipt *Receipt
	engine.Settlement
	done chan struct{} // closed when it is settled; nil: no waiter
}

// New returns a Settler for the receipts of a store. away is what guards the store, nil for one that
// cannot be away. hold keeps both open for the receipt of a charge. release undoes one hold when the
// receipt is settled.
func New(store window.Store, away *fallback.Guard, hold func(*window.Charge), release func()) *Settler {
	return &Settler{store: store, fallback: away, hold: hold, release: release}
}

// Use makes the settler ready. A store without it has nothing to settle.
func (s *Settler) Use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight == nil {
		s.inFlight = inflight.New()
	}
}

// InFlight returns the receipts that are not settled yet; nil before Use.
func (s *Settler) InFlight() *inflight.Receipts { return s.inFlight }

// Admit keeps the store and its fallback open for a receipt of a charge in a zone.
func (s *Settler) Admit(r *Receipt, z *Account) {
	r.zone, r.counter, r.decided = z, s.inFlight.Counter(&r.Charge), uptime.Now()
	s.hold(&r.Charge)
	s.inFlight.Open(r.counter)
}

// Settle sets the final cost of r to units. If the excess over the reservation is charged in the
// background, Settle returns a channel that is closed when that is done.
func (s *Settler) Settle(r *Receipt, units int64) <-chan struct{} {
	own, ok := r.Receipt.Settle(units)
	if !ok {
		return nil
	}
	r.zone.noteCharged(r.Charge.Key, units)
	if own.Delta < 0 {
		r.pendingRefund = s.inFlight.GiveBack(r.counter)
	} else {
		s.inFlight.Settle(r.counter)
	}
	one := settling{receipt: r, Settlement: own}
	if own.Delta > 0 {
		one.done = make(chan struct{})
	}
	if s.fallback == nil || own.Origin == engine.InProcess || own.Delta == 0 || !s.enqueue(one) {
		s.settleNow([]settling{one})
	}
	return one.done
}

// enqueue adds a settlement to the next batch. It reports whether there was room.
func (s *Settler) enqueue(one settling) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= mostQueued {
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
func (s *Settler) run() {
	var batch []settling
	for {
		s.mu.Lock()
		n := min(len(s.queue), mostTogether)
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

// Drain waits until nothing is queued or on its way, but no longer than a time.
func (s *Settler) Drain(longest time.Duration) {
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
func (s *Settler) settleNow(batch []settling) {
	all := make([]engine.Settlement, len(batch))
	for i := range batch {
		all[i] = batch[i].Settlement
	}
	var errs []error
	if s.fallback != nil {
		errs = s.fallback.SettleBatch(context.Background(), all)
	} else {
		errs = engine.SettleBatch(context.Background(), s.store, all)
	}
	for i := range batch {
		s.settled(&batch[i], errs[i])
	}
}

// settled notes how a settlement went.
func (s *Settler) settled(one *settling, err error) {
	r, z := one.receipt, one.receipt.zone
	switch {
	case err == nil:
		z.kept.Add(float64(r.Charge.Cost + min(0, one.Delta)))
		z.givenBack.Add(float64(max(0, -one.Delta)))
		z.excess.Add(float64(max(0, one.Delta)))
		z.seconds.Observe((uptime.Now() - r.decided).Seconds())
	case errors.Is(err, window.ErrUnknown):
		z.unknown.Inc()
	default:
		z.failed.Inc()
	}
	if err != nil {
		z.lost.Add(float64(max(0, one.Delta)))
		s.logUnsettled(z, one.Delta, err)
	}
	if one.Delta < 0 {
		s.inFlight.Refunded(r.counter, r.pendingRefund)
	}
	s.release()
	if one.done != nil {
		close(one.done)
	}
}

// logUnsettled tells the operator, once a minute at most, of units that stay as they were charged.
func (s *Settler) logUnsettled(z *Account, delta int64, cause error) {
	if !s.log.Due(time.Minute) {
		return
	}
	log := storestate.Logger(s.store.String()).With(zap.String("zone", z.name))
	if delta < 0 {
		log.Warn("units of an answered request could not be given back; they count for one window", zap.Error(cause))
	} else {
		log.Warn("units that an answer cost above what was reserved could not be charged", zap.Int64("units", delta), zap.Error(cause))
	}
}
