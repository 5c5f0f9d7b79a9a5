package storestate

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	watchInterval = 10 * time.Second // between two looks at a server
	memoryHigh    = 0.8              // of its maximum, from which on a server is nearly full
	memoryNormal  = 0.7              // below which it no longer is
)

// Monitor looks at a store from when a configuration first runs with it to when none uses it
// any more. It tells in the log whether the store can be reached, and what its server is.
type Monitor struct {
	store    window.Store
	fallback *fallback.Guard
	name     string

	start sync.Once
	stop  context.CancelFunc // nil: it has not begun
	ended sync.WaitGroup

	// Used by the goroutine of run only.
	evicts, high bool
	blind        bool               // the log has that the memory is not known
	server       engine.Description // as it was last seen
}

// begun counts the monitors that have begun, and have not ended, by name.
var (
	begunMu sync.Mutex
	begun   = make(map[string]int)
)

// count adds to the monitors of a name, and returns how many there are.
func count(name string, n int) int {
	begunMu.Lock()
	defer begunMu.Unlock()
	if begun[name] += n; begun[name] == 0 {
		delete(begun, name)
		return 0
	}
	return begun[name]
}

// NewMonitor returns one for a store that may be away.
func NewMonitor(name string, store window.Store, fallback *fallback.Guard) *Monitor {
	return &Monitor{store: store, fallback: fallback, name: name}
}

// Begin starts to watch the store. It does not wait.
func (l *Monitor) Begin() {
	l.start.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		l.stop = cancel
		count(l.name, 1)
		l.ended.Go(func() { l.run(ctx) })
	})
}

// End returns when nothing is watched any more.
func (l *Monitor) End() {
	l.start.Do(func() {}) // it does not begin after this
	if l.stop != nil {
		l.stop()
	}
	l.ended.Wait()
	own := 0
	if l.stop != nil {
		own = 1
	}
	if count(l.name, -own) > 0 {
		return // another one reports the same server, as after a reload
	}
	for _, gauge := range []*prometheus.GaugeVec{metrics.StoreClockOffset, metrics.StoreMemory, metrics.StoreMemoryMax, metrics.StoreInstances} {
		gauge.DeleteLabelValues(l.name)
	}
	l.noteServer(engine.Description{})
}

func (l *Monitor) run(ctx context.Context) {
	if l.fallback.Reach(ctx) != nil {
		return
	}
	d, ok := l.look(ctx)
	var fields []zap.Field
	if ok {
		fields = []zap.Field{zap.String("version", d.Version), zap.String("mode", d.Mode), zap.Duration("clock_offset", d.ClockOffset)}
		fields = append(fields, memoryFields(d.Memory)...)
	}
	Logger(l.name).Info("store is reached", fields...)
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
		if n := l.fallback.Counted(); n > 0 {
			metrics.StoreInstances.WithLabelValues(l.name).Set(float64(n))
		}
		if d, ok := l.look(ctx); ok {
			l.note(d)
		} else if ctx.Err() == nil && l.mayBeAway() && l.fallback.Reach(ctx) != nil {
			return
		}
	}
}

// mayBeAway reports whether a server that does not tell what it is may be away, and no other monitor
// finds out: while remembered denials answer all requests, none reaches it. Nodes of a Cluster are
// away one by one, and a ping reports one only.
func (l *Monitor) mayBeAway() bool {
	_, tells := l.store.(engine.Describer)
	return tells && l.server.Mode != modeCluster
}

const modeCluster = "cluster"

// look asks the server what it is. While that does not answer there is nothing to see: the
// breaker reports outages.
func (l *Monitor) look(ctx context.Context) (engine.Description, bool) {
	describer, ok := l.store.(engine.Describer)
	if !ok {
		return engine.Description{}, false
	}
	d, err := describer.Describe(ctx)
	if err != nil {
		Logger(l.name).Debug("store does not tell what it is", zap.Error(err))
		return d, false
	}
	return d, true
}

// note shows what a server said in metrics, and warns once of each danger that begins.
func (l *Monitor) note(d engine.Description) {
	metrics.StoreClockOffset.WithLabelValues(l.name).Set(d.ClockOffset.Seconds())
	l.noteServer(d)
	m := d.Memory
	if m == nil {
		metrics.StoreMemory.DeleteLabelValues(l.name)
		metrics.StoreMemoryMax.DeleteLabelValues(l.name)
		l.high = false
		if !l.blind {
			l.blind = true
			Logger(l.name).Debug("memory of the store's server is not known; the user lacks +info")
		}
		return
	}
	metrics.StoreMemory.WithLabelValues(l.name).Set(float64(m.Used))
	metrics.StoreMemoryMax.WithLabelValues(l.name).Set(float64(m.Max))
	if evicts := m.Evicts(); evicts != l.evicts {
		l.evicts = evicts
		if evicts {
			Logger(l.name).Warn("server of the store deletes counters when its memory is full; set its maxmemory-policy to noeviction", memoryFields(m)...)
		}
	}
	switch ratio := m.Ratio(); {
	case ratio >= memoryHigh && !l.high:
		l.high = true
		Logger(l.name).Warn("memory of the store's server is nearly full; raise its maxmemory, or take an algorithm that needs less", memoryFields(m)...)
		events.Emit(events.Memory, map[string]any{"store": l.name, "memory": m.Used, "memory_max": m.Max, "maxmemory_policy": m.Policy})
	case ratio < memoryNormal:
		l.high = false
	}
}

// noteServer shows which server the store has. An empty description takes that away.
func (l *Monitor) noteServer(d engine.Description) {
	if d.Version != l.server.Version || d.Mode != l.server.Mode {
		metrics.StoreInfo.DeletePartialMatch(prometheus.Labels{"store": l.name})
	}
	if d.Version != "" {
		metrics.StoreInfo.WithLabelValues(l.name, strings.ToValidUTF8(d.Version, "\uFFFD"), strings.ToValidUTF8(d.Mode, "\uFFFD")).Set(1)
	}
	l.server = d
}

// memoryFields returns what the log says of a server's memory; nothing if it is not known.
func memoryFields(m *engine.ServerMemory) []zap.Field {
	if m == nil {
		return nil
	}
	return []zap.Field{zap.Int64("memory", m.Used), zap.Int64("memory_max", m.Max), zap.String("maxmemory_policy", m.Policy)}
}
