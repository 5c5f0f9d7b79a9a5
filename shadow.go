package slidingwindow

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/fallback"
)

// ShadowModule is implemented by store modules that can keep what zones count without denying
// apart from what others count.
type ShadowModule interface {
	// ShadowStore returns a new store, which the caller closes. It shares neither memory nor
	// connections with Store, and has its name.
	ShadowStore() window.Store
}

// Charges that wait at most, with the bytes of their keys and fields, and charges that a store
// decides on in one call.
const (
	maxShadows     = 4096
	maxShadowBytes = 4 << 20
	shadowBatch    = 128
)

// shadowed is a request in a zone that does not deny it.
type shadowed struct {
	zone     *Zone
	charge   window.Charge
	assessed bool // the matchers have been asked
	applies  bool
	// The decisions of the zone, once they are known.
	decisions atomic.Pointer[[]window.Decision]
	denied    bool            // for want of a key, or by an override
	rule      *overrides.Rule // the override of the key; nil without one
}

// addShadow notes that a zone does not deny the request.
func (req *request) addShadow(zones int, z *Zone) *shadowed {
	if req.shadows == nil {
		shadows := make([]shadowed, 0, zones) // they never move
		req.shadows = &shadows
	}
	*req.shadows = append(*req.shadows, shadowed{zone: z})
	return &(*req.shadows)[len(*req.shadows)-1]
}

// watch counts the request, if it passes, in zones that do not deny it. They decide beside the next
// handlers. What their matchers say, to placeholders above all, these handlers do not see.
func (h *Handler) watch(r *http.Request, req *request) {
	if req.shadows == nil {
		return
	}
	if !req.allowed {
		req.shadows = nil
		return
	}
	view := &request{vars: req.vars}
	for i := range *req.shadows {
		s := &(*req.shadows)[i]
		if s.assessed {
			view.repl = req.repl
		} else {
			view.repl = overlay(req.repl)
			applies, err := s.zone.applies(r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, view.repl)))
			h.assess(s, view, applies, err)
		}
		if s.applies && !s.denied && !h.guard.watch(h, s) {
			s.zone.control.Shadow().Dropped.Count(s.charge.Cost)
		}
	}
}

// overlay returns a replacer that knows what another one knows, and tells it nothing.
func overlay(repl *caddy.Replacer) *caddy.Replacer {
	over := caddy.NewEmptyReplacer()
	over.Map(repl.Get)
	return over
}

// assess finds out what a request spends in a zone that does not deny it, and whether the zone
// would deny it for want of a key, or fail.
func (h *Handler) assess(s *shadowed, view *request, applies bool, err error) {
	z := s.zone
	s.assessed = true
	if err != nil {
		z.control.Shadow().FailedClosed.Count(z.cost)
		if c := h.logger.Check(zap.DebugLevel, "matcher of a shadow zone failed"); c != nil {
			c.Write(zap.String("zone", z.Name), zap.Error(err))
		}
		return
	}
	if !applies {
		return
	}
	key, empty := z.key.Expand(view.vars, view.repl)
	if empty {
		z.empty.Note(h.logger, placeholders.NoKey, view.vars, view.repl)
	}
	switch {
	case empty && z.EmptyKey == emptySkip:
	case empty && z.EmptyKey == emptyDeny:
		s.applies, s.denied = true, true
		z.control.Shadow().Denied.Count(z.cost)
		z.top.Denied("")
	default:
		h.assessKey(s, key, view)
	}
}

// assessKey is assess for a key that is counted, or has an override.
func (h *Handler) assessKey(s *shadowed, key string, view *request) {
	z := s.zone
	s.rule = z.rule(key)
	switch {
	case s.rule != nil && s.rule.Exempt:
		return
	case s.rule != nil && s.rule.Deny:
		s.applies, s.denied = true, true
		z.control.Shadow().Denied.Count(z.cost)
		z.top.Denied(key)
		return
	}
	s.applies, s.charge = true, h.chargeOf(z, key, view)
	if !z.override(&s.charge, s.rule) {
		s.rule = nil
	}
	s.charge.Lease = window.Lease{} // batches ask the store as seldom
}

// shadows decides on charges that deny nobody, one after the other, on a store of its own.
type shadows struct {
	store    window.Store
	fallback *fallback.Guard     // nil for a store that cannot be away
	outages  *storestate.Outages // nil for a store that cannot be away
	ctx      context.Context     // ends with close
	cancel   context.CancelFunc
	worker   sync.WaitGroup // one while charges wait

	mu      sync.Mutex // guards what follows
	waiting []waitingShadow
	bytes   int
	working bool
	closed  bool
}

type waitingShadow struct {
	handler *Handler
	*shadowed
}

func (w waitingShadow) bytes() int {
	n := len(w.charge.Key)
	for _, field := range w.charge.Fields {
		n += len(field)
	}
	return n
}

// newShadows returns shadows of a guard on a store, which they close.
func newShadows(g *guard, store window.Store) *shadows {
	s := &shadows{store: store}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if away, ok := store.(fallback.Store); ok {
		s.outages = storestate.NewOutages(strings.ToValidUTF8(store.String(), "\uFFFD")+" (shadow)", store, false)
		s.fallback = fallback.New(away, fallback.Options{OnChange: s.outages.Changed, OnPing: s.outages.Pinged, Crew: g.fallback})
		s.fallback.Use()
	}
	return s
}

// add has a charge decided on. It reports false if too many wait.
func (s *shadows) add(w waitingShadow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.waiting) >= maxShadows || s.bytes+w.bytes() > maxShadowBytes {
		return false
	}
	s.waiting = append(s.waiting, w)
	s.bytes += w.bytes()
	if !s.working {
		s.working = true
		s.worker.Go(s.work)
	}
	return true
}

// work decides on charges until none waits.
func (s *shadows) work() {
	batch := make([]waitingShadow, 0, shadowBatch)
	for {
		batch = s.next(batch[:0])
		if len(batch) == 0 {
			return
		}
		s.decide(batch)
		clear(batch)
	}
}

// next takes the charges that have waited longest.
func (s *shadows) next(batch []waitingShadow) []waitingShadow {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), shadowBatch)
	batch = append(batch, s.waiting[:n]...)
	for _, w := range batch {
		s.bytes -= w.bytes()
	}
	clear(s.waiting[:n])
	s.waiting = s.waiting[n:]
	if n == 0 {
		s.waiting, s.working = nil, false
	}
	return batch
}

// decide decides as the handlers of the charges would.
func (s *shadows) decide(batch []waitingShadow) {
	requests, charges := make([][]window.Charge, len(batch)), make([]window.Charge, len(batch))
	for i, w := range batch {
		charges[i] = w.charge
		requests[i] = charges[i : i+1]
	}
	for i, result := range s.take(requests) {
		w, ds, err := batch[i], result.Decisions, result.Err
		if err != nil && w.handler.OnError == onErrorLocal && s.fallback != nil && s.ctx.Err() == nil {
			ds, err = s.fallback.TakeLocal(s.ctx, requests[i], err, w.handler.Share)
		}
		if err == nil {
			w.decisions.Store(&ds) // before it is counted, so that who sees the count can see this
		}
		counters, cost := w.zone.control.Shadow(), w.charge.Cost
		switch {
		case err == nil && window.Allowed(ds):
			counters.Allowed.Count(cost)
			w.zone.top.Charged(w.charge.Key, cost)
		case err == nil:
			counters.Denied.Count(cost)
			w.zone.top.Denied(w.charge.Key)
		case s.ctx.Err() != nil:
			counters.Dropped.Count(cost)
		case errors.Is(err, window.ErrUnavailable) && w.handler.OnError == onErrorAllow:
			counters.FailedOpen.Count(cost)
		default:
			counters.FailedClosed.Count(cost)
		}
	}
}

func (s *shadows) take(requests [][]window.Charge) []window.Result {
	if s.fallback == nil {
		return s.store.TakeBatch(s.ctx, requests)
	}
	return s.fallback.TakeBatch(s.ctx, requests)
}

// close ends what decides. Charges that wait are dropped.
func (s *shadows) close() error {
	s.mu.Lock()
	s.closed = true
	for _, w := range s.waiting {
		w.zone.control.Shadow().Dropped.Count(w.charge.Cost)
	}
	s.waiting = nil
	s.mu.Unlock()
	s.cancel()
	s.worker.Wait()
	if s.fallback != nil {
		s.fallback.Disuse()
		_ = s.fallback.Close() // as that of a guard
		s.outages.End()
	}
	return s.store.Close()
}

// shadowSlot is a guard's shadows, which there are from the first request on that needs them.
type shadowSlot struct {
	open   func() window.Store // nil: the store has none
	now    atomic.Pointer[shadows]
	mu     sync.Mutex // held while they come and go
	closed bool
}

// watch has a charge decided on that denies nobody. It reports false if it is dropped.
func (g *guard) watch(h *Handler, s *shadowed) bool {
	now := g.shadow.now.Load()
	if now == nil {
		now = g.openShadows()
	}
	return now != nil && now.add(waitingShadow{h, s})
}

// openShadows returns the shadows of g, and opens them if they were not open. It returns nil
// if g has no store for shadows, or if they were closed before they were opened.
func (g *guard) openShadows() *shadows {
	slot := &g.shadow
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if now := slot.now.Load(); now != nil || slot.closed || slot.open == nil {
		return now
	}
	now := newShadows(g, slot.open())
	slot.now.Store(now)
	return now
}

// peekShadow is peek for charges that deny nobody. A store without a server keeps such counts apart.
func (g *guard) peekShadow(ctx context.Context, charges []window.Charge, local, share bool) (ds []window.Decision, by engine.Source, cause, err error) {
	if g.fallback == nil {
		if now := g.openShadows(); now != nil {
			ds, err = now.store.Peek(ctx, charges)
			return ds, engine.SourceStore, nil, err
		}
	}
	return g.peek(ctx, charges, local, share)
}

func (g *guard) closeShadows() error {
	slot := &g.shadow
	slot.mu.Lock()
	defer slot.mu.Unlock()
	slot.closed = true
	if now := slot.now.Load(); now != nil {
		return now.close()
	}
	return nil
}

// enforcedHere reports whether a zone may have denied the request in this handler, and whether
// the zone counts it here.
func (req *request) enforcedHere(zone string) (enforced, counts bool) {
	if req.keyless != nil && req.keyless.Name == zone {
		return true, true
	}
	for _, z := range req.zones {
		if z.Name == zone {
			return true, true
		}
	}
	return false, req.shadowOf(zone) != nil
}

// isShadowed reports whether a zone counts the request here and does not deny it.
func (req *request) isShadowed() bool {
	if req.shadows == nil {
		return false
	}
	for i := range *req.shadows {
		if (*req.shadows)[i].applies {
			return true
		}
	}
	return false
}

// shadowOf returns the request in a zone that counts it here and does not deny it, or nil without
// such a zone.
func (req *request) shadowOf(zone string) *shadowed {
	if req.shadows == nil {
		return nil
	}
	for i := range *req.shadows {
		if s := &(*req.shadows)[i]; s.applies && s.zone.Name == zone {
			return s
		}
	}
	return nil
}

// field returns a field of what the zone would have decided, empty until that is known.
func (s *shadowed) field(name string) (any, bool) {
	if s.denied && name == "allowed" {
		return false, true
	}
	ds := s.decisions.Load()
	if ds == nil {
		return decisionField(nil, name)
	}
	return decisionField(&(*ds)[tightest(*ds)], name)
}
