package slidingwindow

import (
	"math"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
)

var (
	loadFactor = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "load_factor_ratio",
		Help: "What limits of a zone with load are multiplied by. Of zones of one name, the smallest.",
	}, []string{"zone"})

	loadSignal = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "load_signal_ratio",
		Help: "Share of the CPU time, or of the memory, that is used of what this Caddy may use, where a zone with load asks for it. Not there while it is not known.",
	}, []string{"signal"})

	loadLatency = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "load_latency_seconds",
		Help: "Time to the status of an answer in a zone with load, of which nine tenths are not slower. Not there while there are too few requests.",
	}, []string{"zone"})
)

// loadMetrics tells the load of the zones that run, as it is when somebody asks.
var loadMetrics loadCollector

type loadCollector struct{ mu sync.Mutex } // held while the metrics are set

// Describe implements prometheus.Collector.
func (*loadCollector) Describe(all chan<- *prometheus.Desc) {
	for _, v := range []*prometheus.GaugeVec{loadFactor, loadSignal, loadLatency} {
		v.Describe(all)
	}
}

// Collect implements prometheus.Collector.
func (c *loadCollector) Collect(all chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	vecs := []*prometheus.GaugeVec{loadFactor, loadSignal, loadLatency}
	for _, v := range vecs {
		v.Reset()
	}
	factors := make(map[string]float64)
	for _, one := range zoneLoads() {
		if f, ok := factors[one.Zone]; !ok || one.Factor < f { // of zones on several stores, the smallest
			factors[one.Zone] = one.Factor
			loadFactor.WithLabelValues(one.Zone).Set(one.Factor)
		}
		for name, value := range one.Signals {
			if name == load.Latency.String() {
				loadLatency.WithLabelValues(one.Zone).Set(value)
			} else {
				loadSignal.WithLabelValues(name).Set(value)
			}
		}
	}
	for _, v := range vecs {
		v.Collect(all)
	}
}

// zoneLoads returns the load of the zones that run.
func zoneLoads() (all []control.ZoneLoad) {
	for _, zones := range running.list() {
		if z := &zones[0].zone; z.load != nil {
			all = append(all, control.ZoneLoad{Zone: z.Name, Store: zones[0].id().store, Factor: round(z.load.Factor()), Signals: z.load.signals()})
		}
	}
	return all
}

// signals returns those that the zone uses, as far as they are known.
func (l *zoneLoad) signals() map[string]float64 {
	o, values := l.Options(), make(map[string]float64)
	for _, signal := range []load.Signal{load.CPU, load.Memory} {
		if value, known := l.sampler.Latest(signal); known && o.Uses(signal) {
			values[signal.String()] = round(value)
		}
	}
	if p, known := l.Latency(); known {
		values[load.Latency.String()] = round(p.Seconds())
	}
	return values
}

// round keeps four decimals.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }
