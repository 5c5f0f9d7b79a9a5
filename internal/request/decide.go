package request

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// decide asks the store, and while it is away does what on_error says. An error
// leaves it to undecided.
func (h *Handler) decide(ctx context.Context, req *request) error {
	req.origin, req.inDoubt = engine.InStore, false
	ds, err := h.Store.Take(ctx, req.charges, req.decisions[:cap(req.decisions)])
	if err != nil && h.OnError.Local() && ctx.Err() == nil && h.Store.IsRemote() {
		if c := h.Logger.Check(zap.DebugLevel, "store could not decide; deciding on local counts"); c != nil {
			c.Write(zap.Error(err))
		}
		req.origin, req.inDoubt = engine.InProcess, errors.Is(err, window.ErrUnknown)
		ds, err = h.Store.TakeLocal(ctx, req.charges, err, h.Share, h.unsettled(req))
	}
	req.decisions, req.allowed = ds, err == nil && window.Allowed(ds)
	return err
}

// landingLast is the longest that a request waits for units that come back, and for the turns of others.
const landingLast = 250 * time.Millisecond

// decideSettled is decide for a handler with zones that settle. A denied request is decided on once
// more if units came back in a zone that denies it since it was sent, or are about to: a client that has
// its answer has its unit back. It waits for those that are on their way when it is denied, and for no
// later ones. Requests that come by then wait for its second decision: they could take the room that came
// back, beside a unit of their client's request before. While other receipts of the counter are not settled,
// room may come back before the limit tells, so that such a denial holds for a second at most.
func (h *Handler) decideSettled(ctx context.Context, req *request) error {
	inFlight := h.Store.Settler.InFlight()
	wait := patience{ctx: ctx}
	defer wait.stop()
	var room [4]uint64
	before := room[:0]
	for i, z := range req.zones {
		before = append(before, 0)
		if z.Settles() {
			counter := inFlight.Counter(&req.charges[i])
			wait.until(inFlight.Turns(counter))
			before[i] = inFlight.RefundsOf(counter).Load()
		}
	}
	if err := h.decide(ctx, req); err != nil || req.allowed {
		return err
	}
	if err := h.decideAgain(ctx, req, before, &wait); err != nil || req.allowed {
		return err
	}
	for i, z := range req.zones {
		if !z.Settles() {
			continue
		}
		counter := inFlight.Counter(&req.charges[i])
		isOpen := inFlight.Any(counter)
		req.unsettled = req.unsettled || isOpen || inFlight.RefundsOf(counter).Load() != before[i]
		if z.CountIf == nil || !isOpen {
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

// decideAgain decides once more on a denied request if units came back in a zone that denies it, since they were as
// often given back as before says, or are about to.
func (h *Handler) decideAgain(ctx context.Context, req *request, before []uint64, wait *patience) error {
	inFlight := h.Store.Settler.InFlight()
	came := false
	for i, z := range req.zones {
		if !z.Settles() || window.Allowed(req.decisionsOf(i)) {
			continue
		}
		counter := inFlight.Counter(&req.charges[i])
		turn := inFlight.Turn(counter)
		defer inFlight.EndTurn(counter, turn)
		landed := inFlight.PendingRefunds(counter)
		came = came || landed != nil || inFlight.RefundsOf(counter).Load() != before[i]
		wait.until(landed)
		before[i] = inFlight.RefundsOf(counter).Load()
	}
	if !came || ctx.Err() != nil {
		return nil
	}
	return h.decide(ctx, req)
}

// patience is what a request waits with: landingLast at most, all told, and no longer than its client.
type patience struct {
	ctx   context.Context
	timer *time.Timer // nil: it has not waited yet
	over  bool
}

// until waits until done is closed. It does not wait if done is nil.
func (p *patience) until(done <-chan struct{}) {
	if done == nil || p.over {
		return
	}
	if p.timer == nil {
		p.timer = time.NewTimer(landingLast)
	}
	select {
	case <-done:
	case <-p.timer.C:
		p.over = true
	case <-p.ctx.Done():
		p.over = true
	}
}

func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// unsettled returns the places of charges that get receipts.
func (h *Handler) unsettled(req *request) (places []int) {
	for i, z := range req.zones {
		if z.Settles() {
			places = append(places, i)
		}
	}
	return places
}
