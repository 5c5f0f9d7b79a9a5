package alert

import (
	"context"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
)

// watchTick is the time between two looks at the zones.
const watchTick = time.Second

// Watcher looks at the zones that run, as long as a configuration does. Requests do not wait for it.
type Watcher struct {
	// look looks at all zones that run.
	look func(now time.Time)

	mu    sync.Mutex // guards what follows
	users int
	stop  context.CancelFunc
	done  chan struct{} // closed when it has ended
}

// Begin starts the watcher. Each Begin needs an End.
func (w *Watcher) Begin() {
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

// End returns when it does not run any more, unless another Begin is open.
func (w *Watcher) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
		<-w.done
	}
}

// NewWatcher returns one that has look called.
func NewWatcher(look func(now time.Time)) *Watcher { return &Watcher{look: look} }

func (w *Watcher) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	ticker := time.NewTicker(watchTick)
	defer ticker.Stop()
	for {
		w.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Watch looks at a zone that has an alert, or none.
func (t *Counters) Watch(r *Rule, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	c := t.Read()
	t.watchAlert(r, now, c)
	t.summarize(now, c)
}

// watchAlert reports an alert that fires or is resolved. t.mu must be held.
func (t *Counters) watchAlert(r *Rule, now time.Time, c Counted) {
	since := t.alert.since
	step := t.alert.step(r, t.Born, now, c)
	if step.fired {
		since = now
	}
	if since.IsZero() {
		return
	}
	shown := control.Alert{
		Zone: t.zone.Zone, Store: t.zone.Store.Name, Since: since.UTC().Format(time.RFC3339),
		DeniedRatio: math.Round(step.ratio*1e4) / 1e4, Denied: step.refused, Requests: step.requests,
	}
	fields := []zap.Field{
		zap.String("zone", shown.Zone), zap.Float64("denied_ratio", shown.DeniedRatio),
		zap.Int64("denied", shown.Denied), zap.Int64("requests", shown.Requests),
	}
	switch {
	case step.fired:
		t.Fired.Store(&shown)
		metrics.AlertFiring.WithLabelValues(t.zone.Zone).Inc()
		storestate.Logger(t.zone.Store.Name).Warn("zone denies a large share of its requests", append(fields, zap.Duration("over", r.Over))...)
		emit(events.Alert, &shown)
	case step.resolved:
		t.Fired.Store(nil)
		metrics.AlertFiring.WithLabelValues(t.zone.Zone).Dec()
		storestate.Logger(t.zone.Store.Name).Info("alert resolved", append(fields, zap.Duration("after", now.Sub(since)))...)
		emit(events.Resolved, &shown)
	default:
		t.Fired.Store(&shown)
	}
}

// emit sends the event of an alert.
func emit(event string, a *control.Alert) {
	events.Emit(event, map[string]any{
		"zone": a.Zone, "store": a.Store, "since": a.Since,
		"denied_ratio": a.DeniedRatio, "denied": a.Denied, "requests": a.Requests,
	})
}
