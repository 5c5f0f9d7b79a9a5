package alert

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/recent"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// nearLimit is the share of a limit from which on a request that passes is near it.
const nearLimit = 0.8

// Counters counts what a zone decides, for alerts and summaries. It is the same for all handlers with
// the zone, and outlives reloads. Requests only add to it, without a lock; the watcher reads it.
type Counters struct {
	zone engine.ZoneID
	Born time.Time

	allowed, denied, failedOpen, failedClosed atomic.Int64

	// Keys that were denied since the last summary.
	keys     distinct
	frequent toptalkers.Frequent // with log_key
	logs     atomic.Bool         // whether keys may be logged: no longer after a reload without log_key

	// What the zone has decided in the last minutes, in shadow, too. The watcher fills it from the metrics.
	Recent recent.History

	// What status shows of an alert that has fired; nil: none has.
	Fired atomic.Pointer[control.Alert]

	mu      sync.Mutex // guards what follows
	closed  bool
	alert   alertState
	summary summary
}

// Counted is a tally at one time.
type Counted struct{ Allowed, Denied, FailedOpen, FailedClosed int64 }

func (c Counted) requests() int64 { return c.Allowed + c.Denied + c.FailedOpen + c.FailedClosed }
func (c Counted) refused() int64  { return c.Denied + c.FailedClosed }

func (t *Counters) Read() Counted {
	return Counted{t.allowed.Load(), t.denied.Load(), t.failedOpen.Load(), t.failedClosed.Load()}
}

type part struct{}

// countersOf returns the counters of the zone of a hold.
func countersOf(h *zonepool.Hold) *Counters {
	return zonepool.Get(h, part{}, func() *Counters {
		now := time.Now()
		return &Counters{zone: h.Zone, Born: now, summary: summary{since: now}}
	})
}

// Destruct implements caddy.Destructor. An alert of a zone that is gone is over.
func (t *Counters) Destruct() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if last := t.Fired.Swap(nil); last != nil {
		metrics.AlertFiring.WithLabelValues(t.zone.Zone).Dec()
		storestate.Logger(last.Store).Info("alert resolved: no configuration has the zone any more", zap.String("zone", last.Zone))
		emit(events.Resolved, last)
	}
	return nil
}

// Recorder counts what was decided on requests in a zone of a handler.
type Recorder struct {
	Counters *Counters
	logs     bool // keys
	near     prometheus.Counter
	Used     prometheus.Observer
}

// NewRecorder returns what counts the decisions of the zone of a hold, and has its metrics exist before the first
// request: that of alerts if the zone has one. logs says whether keys may be logged.
func NewRecorder(h *zonepool.Hold, alerts, logs bool) Recorder {
	zone := h.Zone.Zone
	if alerts {
		metrics.AlertFiring.WithLabelValues(zone)
	}
	return Recorder{countersOf(h), logs, metrics.NearLimitTotal.WithLabelValues(zone), metrics.UsedRatio.WithLabelValues(zone)}
}

// Watch looks at the zone, and reports an alert that fires by the rule, or is resolved.
func (s *Recorder) Watch(r *Rule, now time.Time) {
	s.Counters.logs.Store(s.logs)
	s.Counters.Watch(r, now)
}

// Alert returns the alert of the zone, if it has fired and is not resolved; nil otherwise.
func (s *Recorder) Alert() *control.Alert { return s.Counters.Fired.Load() }

// Passed counts a charge that was admitted.
func (s *Recorder) Passed(ds []window.Decision) {
	s.Counters.allowed.Add(1)
	used := usedOf(ds)
	s.Used.Observe(used)
	if used >= nearLimit {
		s.near.Inc()
	}
}

// Denied counts a charge that a limit denied.
func (s *Recorder) Denied(c *window.Charge, ds []window.Decision) {
	s.Counters.denied.Add(1)
	s.Used.Observe(usedOf(ds))
	s.Refused(c.Key)
}

// Keyless counts a request that was denied for want of a key.
func (s *Recorder) Keyless() { s.Counters.denied.Add(1) }

// Failed counts a charge that was not decided on.
func (s *Recorder) Failed(c *window.Charge, allowed bool) {
	if allowed {
		s.Counters.failedOpen.Add(1)
		return
	}
	s.Counters.failedClosed.Add(1)
	s.Refused(c.Key)
}

var keySeed = maphash.MakeSeed()

// Refused records the key of a refused request.
func (s *Recorder) Refused(key string) {
	hash := maphash.String(keySeed, key)
	s.Counters.keys.add(hash)
	if s.logs {
		s.Counters.frequent.Add(hash, key)
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
