package slidingwindow

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
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
	blind        bool               // the log has that the memory is not known
	server       engine.Description // as it was last seen
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
	if slices.ContainsFunc(running.guards(), func(g *guard) bool { return g.lookout != nil && g.lookout != l && g.lookout.name == l.name }) {
		return // another one tells of the same server, as after a reload
	}
	for _, gauge := range []*prometheus.GaugeVec{storeClockOffset, storeMemory, storeMemoryMax, storeInstances} {
		gauge.DeleteLabelValues(l.name)
	}
	l.noteServer(engine.Description{})
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
		if n := l.fallback.Counted(); n > 0 {
			storeInstances.WithLabelValues(l.name).Set(float64(n))
		}
		if d, ok := l.look(ctx); ok {
			l.note(d)
		} else if ctx.Err() == nil && l.mayBeAway() && l.fallback.Reach(ctx) != nil {
			return
		}
	}
}

// mayBeAway reports whether a server that does not tell what it is may be away, and nobody else
// finds out: while remembered denials answer all requests, none reaches it. Nodes of a Cluster are
// away one by one, and a ping tells of one only.
func (l *lookout) mayBeAway() bool {
	_, tells := l.store.(engine.Describer)
	return tells && l.server.Mode != modeCluster
}

const modeCluster = "cluster"

// look asks the server what it is. While that does not answer there is nothing to see: the
// breaker tells of outages.
func (l *lookout) look(ctx context.Context) (engine.Description, bool) {
	describer, ok := l.store.(engine.Describer)
	if !ok {
		return engine.Description{}, false
	}
	d, err := describer.Describe(ctx)
	if err != nil {
		storeLogger(l.name).Debug("store does not tell what it is", zap.Error(err))
		return d, false
	}
	return d, true
}

// note shows what a server said in metrics, and warns once of each danger that begins.
func (l *lookout) note(d engine.Description) {
	storeClockOffset.WithLabelValues(l.name).Set(d.ClockOffset.Seconds())
	l.noteServer(d)
	m := d.Memory
	if m == nil {
		storeMemory.DeleteLabelValues(l.name)
		storeMemoryMax.DeleteLabelValues(l.name)
		l.high = false
		if !l.blind {
			l.blind = true
			storeLogger(l.name).Debug("memory of the store's server is not known; the user lacks +info")
		}
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
		emit(eventMemory, map[string]any{"store": l.name, "memory": m.Used, "memory_max": m.Max, "maxmemory_policy": m.Policy})
	case share < memoryNormal:
		l.high = false
	}
}

// noteServer shows which server the store has. An empty description takes that away.
func (l *lookout) noteServer(d engine.Description) {
	if d.Version != l.server.Version || d.Mode != l.server.Mode {
		storeInfo.DeletePartialMatch(prometheus.Labels{"store": l.name})
	}
	if d.Version != "" {
		storeInfo.WithLabelValues(l.name, strings.ToValidUTF8(d.Version, "\uFFFD"), strings.ToValidUTF8(d.Mode, "\uFFFD")).Set(1)
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
