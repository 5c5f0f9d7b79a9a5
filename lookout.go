package slidingwindow

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

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
	d, ok := l.look(ctx)
	var fields []zap.Field
	if ok {
		fields = []zap.Field{zap.String("version", d.Version), zap.String("mode", d.Mode), zap.Duration("clock_offset", d.ClockOffset)}
		fields = append(fields, memoryFields(d.Memory)...)
	}
	storeLogger(l.name).Info("store is reached", fields...)
	if ok {
		l.note(d)
	}
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
	if evicts := m.Evicts(); evicts != l.evicts {
		l.evicts = evicts
		if evicts {
			storeLogger(l.name).Warn("server of the store deletes counters when its memory is full; set its maxmemory-policy to noeviction", memoryFields(m)...)
		}
	}
	switch share := m.Share(); {
	case share >= memoryHigh && !l.high:
		l.high = true
		storeLogger(l.name).Warn("memory of the store's server is nearly full; raise its maxmemory, or take an algorithm that needs less", memoryFields(m)...)
	case share < memoryNormal:
		l.high = false
	}
}

// memoryFields returns what the log says of a server's memory; nothing if it is not known.
func memoryFields(m *window.ServerMemory) []zap.Field {
	if m == nil {
		return nil
	}
	return []zap.Field{zap.Int64("memory", m.Used), zap.Int64("memory_max", m.Max), zap.String("maxmemory_policy", m.Policy)}
}
