package slidingwindow

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/metrics"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// nearLimit is the share of a limit from which on a request that passes is near it.
const nearLimit = 0.8

// tally counts what a zone decides, for alerts and summaries. It is the same for all handlers with
// the zone, and outlives reloads. Requests only add to it, without a lock; the watcher reads it.
type tally struct {
	id   zoneID
	born time.Time

	allowed, denied, failedOpen, failedClosed atomic.Int64

	// Keys that were denied since the last summary.
	keys     distinct
	frequent frequent    // with log_key
	logs     atomic.Bool // whether keys may be logged: no longer after a reload without log_key

	// What status shows of an alert that has fired; nil: none has.
	fired atomic.Pointer[control.Alert]

	mu     sync.Mutex // guards what follows
	closed bool
	alert  alertState
	told   counted // by the last summary
	since  time.Time
}

// counted is a tally at one time.
type counted struct{ allowed, denied, failedOpen, failedClosed int64 }

func (c counted) requests() int64 { return c.allowed + c.denied + c.failedOpen + c.failedClosed }
func (c counted) refused() int64  { return c.denied + c.failedClosed }

func (t *tally) read() counted {
	return counted{t.allowed.Load(), t.denied.Load(), t.failedOpen.Load(), t.failedClosed.Load()}
}

var tallies = caddy.NewUsagePool()

// acquireTally returns that of a zone. Release it with releaseTally.
func acquireTally(id zoneID) *tally {
	value, _, _ := tallies.LoadOrNew(id, func() (caddy.Destructor, error) {
		now := time.Now()
		return &tally{id: id, born: now, since: now}, nil
	})
	return value.(*tally)
}

func releaseTally(id zoneID) { _, _ = tallies.Delete(id) } // Destruct returns no error

// Destruct implements caddy.Destructor. An alert of a zone that is gone is over.
func (t *tally) Destruct() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if last := t.fired.Swap(nil); last != nil {
		metrics.AlertFiring.WithLabelValues(t.id.zone).Dec()
		events.Emit(events.Resolved, map[string]any{
			"zone": last.Zone, "store": last.Store, "since": last.Since,
			"denied_ratio": last.DeniedRatio, "denied": last.Denied, "requests": last.Requests,
		})
	}
	return nil
}

// seen counts what was decided on requests in a zone of a handler.
type seen struct {
	tally *tally
	logs  bool // keys
	near  prometheus.Counter
	used  prometheus.Observer
}

// newSeen returns what counts the decisions of a zone, and has its metrics exist before the first
// request. Release its tally with releaseTally.
func (z *Zone) newSeen(id zoneID, logs bool) seen {
	if z.Alert != nil {
		metrics.AlertFiring.WithLabelValues(z.Name)
	}
	return seen{acquireTally(id), logs, metrics.NearLimitTotal.WithLabelValues(z.Name), metrics.UsedRatio.WithLabelValues(z.Name)}
}

// passed counts a charge that was admitted.
func (s *seen) passed(ds []window.Decision) {
	s.tally.allowed.Add(1)
	used := usedOf(ds)
	s.used.Observe(used)
	if used >= nearLimit {
		s.near.Inc()
	}
}

// denied counts a charge that a limit denied.
func (s *seen) denied(c *window.Charge, ds []window.Decision) {
	s.tally.denied.Add(1)
	s.used.Observe(usedOf(ds))
	s.refused(c.Key)
}

// keyless counts a request that was denied for want of a key.
func (s *seen) keyless() { s.tally.denied.Add(1) }

// failed counts a charge on which nobody could decide.
func (s *seen) failed(c *window.Charge, allowed bool) {
	if allowed {
		s.tally.failedOpen.Add(1)
		return
	}
	s.tally.failedClosed.Add(1)
	s.refused(c.Key)
}

var keySeed = maphash.MakeSeed()

// refused notes whose request did not pass.
func (s *seen) refused(key string) {
	hash := maphash.String(keySeed, key)
	s.tally.keys.add(hash)
	if s.logs {
		s.tally.frequent.add(hash, key)
	}
}

// usedOf returns how much is used of the limit of which least is left, from 0 to 1.
func usedOf(ds []window.Decision) float64 {
	var most float64
	for i := range ds {
		used := 1.0
		if d := &ds[i]; d.Limit > 0 {
			used = float64(d.Limit-d.Remaining) / float64(d.Limit)
		}
		most = max(most, used)
	}
	return most
}
