package slidingwindow

import (
	"context"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/stores"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/fallback"
)

const (
	watchInterval = 10 * time.Second // between two looks at a server
	memoryHigh    = 0.8              // of its maximum, from which on a server is nearly full
	memoryNormal  = 0.7              // below which it no longer is
)

// lookout looks at a store from when a configuration first runs with it to when none uses it
// any more. It tells in the log whether the store can be reached, and what its server is.
type lookout struct {
	store    window.Store
	fallback *fallback.Guard
	name     string

	start sync.Once
	stop  context.CancelFunc // nil: it has not begun
	ended sync.WaitGroup

	// Used by the goroutine of run only.
	evicts, high bool
}

// begin has the store watched. It does not wait.
func (l *lookout) begin() {
	l.start.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		l.stop = cancel
		l.ended.Go(func() { l.run(ctx) })
	})
}

// end returns when nothing is watched any more.
func (l *lookout) end() {
	l.start.Do(func() {}) // it does not begin after this
	if l.stop != nil {
		l.stop()
	}
	l.ended.Wait()
	for _, gauge := range []*prometheus.GaugeVec{storeClockOffset, storeMemory, storeMemoryMax} {
		gauge.DeleteLabelValues(l.name)
	}
}

func (l *lookout) run(ctx context.Context) {
	if l.fallback.Reach(ctx) != nil {
		return
	}
	d, _ := l.look(ctx)
	fields := []zap.Field{zap.String("version", d.Version), zap.String("mode", d.Mode), zap.Duration("clock_offset", d.ClockOffset)}
	if m := d.Memory; m != nil {
		fields = append(fields, zap.Int64("memory", m.Used), zap.Int64("memory_max", m.Max), zap.String("maxmemory_policy", m.Policy))
	}
	storeLogger(l.name).Info("store is reached", fields...)
	l.note(d)
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if d, ok := l.look(ctx); ok {
			l.note(d)
		}
	}
}

// look asks the server what it is. While that does not answer there is nothing to see: the
// breaker tells of outages.
func (l *lookout) look(ctx context.Context) (window.Description, bool) {
	describer, ok := l.store.(window.Describer)
	if !ok {
		return window.Description{}, false
	}
	d, err := describer.Describe(ctx)
	if err != nil {
		storeLogger(l.name).Debug("store does not tell what it is", zap.Error(err))
		return d, false
	}
	return d, true
}

// note shows what a server said in metrics, and warns once of each danger that begins.
func (l *lookout) note(d window.Description) {
	storeClockOffset.WithLabelValues(l.name).Set(d.ClockOffset.Seconds())
	m := d.Memory
	if m == nil {
		return
	}
	storeMemory.WithLabelValues(l.name).Set(float64(m.Used))
	storeMemoryMax.WithLabelValues(l.name).Set(float64(m.Max))
	fields := []zap.Field{zap.Int64("memory", m.Used), zap.Int64("memory_max", m.Max), zap.String("maxmemory_policy", m.Policy)}
	if evicts := m.Evicts(); evicts != l.evicts {
		l.evicts = evicts
		if evicts {
			storeLogger(l.name).Warn("server of the store deletes counters when its memory is full; set its maxmemory-policy to noeviction", fields...)
		}
	}
	switch share := m.Share(); {
	case share >= memoryHigh && !l.high:
		l.high = true
		storeLogger(l.name).Warn("memory of the store's server is nearly full; raise its maxmemory, or take an algorithm that needs less", fields...)
	case share < memoryNormal:
		l.high = false
	}
}

const (
	causeInterval = 10 * time.Second // between two lines on the cause of one outage, at least
	outageRepeat  = time.Hour        // after which an outage is told again
)

// pinged is told of each ping that fails while a part is away. It writes a line when the cause
// is another one twice in a row, and every hour.
func (l *outageLog) pinged(part string, cause error) {
	l.mu.Lock()
	o, ok := l.parts[part]
	if !ok {
		l.mu.Unlock()
		return
	}
	now, kind := l.now(), causeOf(cause)
	changed := kind != o.kind && kind == o.pinged
	o.pinged = kind
	changed = changed && now.Sub(o.told) >= causeInterval
	repeated := now.Sub(o.told) >= outageRepeat
	if changed || repeated {
		o.kind, o.told, o.cause = kind, now, cause
	}
	l.parts[part] = o
	l.mu.Unlock()
	if !changed && !repeated {
		return
	}
	logger := storeLogger(l.store).With(zap.Duration("away", now.Sub(o.since)), zap.Error(cause))
	if hint := stores.Hint(l.of, cause); hint != "" {
		logger = logger.With(zap.String("hint", hint))
	}
	if part != "" {
		logger = logger.With(zap.String("node", part))
	}
	logger.Warn("store is still unavailable")
}

// ends are the two ends of a connection in an error: the near one is another each time.
var ends = regexp.MustCompile(`\S+->\S+`)

// causeOf returns the text of an error without what differs each time.
func causeOf(err error) string { return ends.ReplaceAllString(err.Error(), "") }
