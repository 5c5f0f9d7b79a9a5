package slidingwindow

import (
	"context"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
)

const (
	watchTick     = time.Second      // between two looks at the zones
	summaryPeriod = 10 * time.Second // between two lines on a zone, at least
)

// watching is the watcher of this process.
var watching watcher

// watcher looks at the zones that run, as long as a configuration does. Requests do not wait for it.
type watcher struct {
	mu    sync.Mutex // guards what follows
	users int
	stop  context.CancelFunc
	done  chan struct{} // closed when it has ended
}

// begin has it run. Each begin needs an end.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users++; w.users > 1 {
		return
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	w.done = make(chan struct{})
	go w.run(ctx, w.done)
}

// end returns when it does not run any more, if nobody else has begun it.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
		<-w.done
	}
}

func (w *watcher) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	ticker := time.NewTicker(watchTick)
	defer ticker.Stop()
	for {
		watchZones(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// watchZones looks at all zones that run. Of two configurations, the newer one says what to watch for.
func watchZones(now time.Time) {
	for _, zones := range running.list() {
		z := &zones[0].zone
		z.control.current() // which notes that its time is over
		z.seen.tally.logs.Store(z.seen.logs)
		z.seen.tally.watch(z.alerting, now)
	}
}

// watch looks at a zone that has an alert, or none.
func (t *tally) watch(r *alertRule, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	c := t.read()
	t.watchAlert(r, now, c)
	if now.Sub(t.since) >= summaryPeriod {
		t.summarize(now, c)
	}
}

// watchAlert tells of an alert that fires or is resolved. t.mu must be held.
func (t *tally) watchAlert(r *alertRule, now time.Time, c counted) {
	since := t.alert.since
	step := t.alert.step(r, t.born, now, c)
	if step.fired {
		since = now
	}
	if since.IsZero() {
		return
	}
	shown := control.Alert{
		Zone: t.id.zone, Store: t.id.store, Since: since.UTC().Format(time.RFC3339),
		DeniedRatio: math.Round(step.ratio*1e4) / 1e4, Denied: step.refused, Requests: step.requests,
	}
	data := map[string]any{
		"zone": shown.Zone, "store": shown.Store, "since": shown.Since,
		"denied_ratio": shown.DeniedRatio, "denied": shown.Denied, "requests": shown.Requests,
	}
	fields := []zap.Field{
		zap.String("zone", shown.Zone), zap.Float64("denied_ratio", shown.DeniedRatio),
		zap.Int64("denied", shown.Denied), zap.Int64("requests", shown.Requests),
	}
	switch {
	case step.fired:
		t.fired.Store(&shown)
		metrics.AlertFiring.WithLabelValues(t.id.zone).Inc()
		storestate.Logger(t.id.store).Warn("zone denies a large share of its requests", append(fields, zap.Duration("over", r.over))...)
		events.Emit(events.Alert, data)
	case step.resolved:
		t.fired.Store(nil)
		metrics.AlertFiring.WithLabelValues(t.id.zone).Dec()
		storestate.Logger(t.id.store).Info("alert of zone is resolved", append(fields, zap.Duration("after", now.Sub(since)))...)
		events.Emit(events.Resolved, data)
	default:
		t.fired.Store(&shown)
	}
}

// summarize writes a line on what was decided since the last summary, if something was denied.
// t.mu must be held.
func (t *tally) summarize(now time.Time, c counted) {
	period := now.Sub(t.since)
	last := t.told
	t.told, t.since = c, now
	if c.refused() == last.refused() {
		return
	}
	fields := []zap.Field{
		zap.String("zone", t.id.zone), zap.Duration("period", period.Round(time.Second)),
		zap.Int64("allowed", c.allowed-last.allowed), zap.Int64("denied", c.denied-last.denied),
		zap.Int64("failed_open", c.failedOpen-last.failedOpen), zap.Int64("failed_closed", c.failedClosed-last.failedClosed),
		zap.Int64("keys", t.keys.take()),
	}
	if most := t.frequent.take(3); t.logs.Load() && len(most) > 0 {
		fields = append(fields, zap.Any("most", most))
	}
	storestate.Logger(t.id.store).Info("zone denied requests", fields...)
}

// listAlerts returns the alerts that have fired, by zone.
func listAlerts() []control.Alert {
	all := []control.Alert{}
	for _, zones := range running.list() {
		if a := zones[0].zone.seen.tally.fired.Load(); a != nil {
			all = append(all, *a)
		}
	}
	return all
}
