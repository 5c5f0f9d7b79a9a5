package redis

import (
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Foretell implements engine.Foreteller: units of a lease and remembered denials decide without
// the server.
func (s *Store) Foretell(charges []window.Charge) ([]window.Decision, engine.Source) {
	if engine.CheckCharges(charges) != nil || len(charges) == 0 {
		return nil, engine.SourceStore
	}
	if len(charges) == 1 && charges[0].Lease.Units > 0 {
		if ds := s.leases.foretell(&charges[0]); ds != nil {
			return ds, engine.SourceLease
		}
	}
	if ds := s.denials.answer(s.denials.ask(), charges, nil); ds != nil {
		return ds, engine.SourceRemembered
	}
	return nil, engine.SourceStore
}

// foretell returns what a lease would say to a request of this charge before its cost is handed
// out, or nil if there is no lease for it.
func (l *leases) foretell(c *window.Charge) []window.Decision {
	if c.Cost == 0 || c.Cost > c.Lease.Units/2 || l.store.lifetime(c) == 0 {
		return nil // as take does
	}
	e := l.of(c)
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := l.now()
	if own := e.lease; !e.gone && own != nil && own.lives(now) && own.left >= c.Cost {
		return own.decide(own.left, now, nil)
	}
	return nil
}

// CounterName implements engine.CounterNamer.
func (s *Store) CounterName(c window.Charge) string {
	if s.throttles([]window.Charge{c}) {
		return string(s.namings[0].appendNative(nil, &c))
	}
	return string(s.namings[0].appendKey(nil, &c))
}
