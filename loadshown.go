package slidingwindow

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
)

// loadMetrics tells the load of the zones that run.
var loadMetrics = loadCollector{
	factor: prometheus.NewDesc("caddy_sliding_window_load_factor_ratio",
		"What limits of a zone with load are multiplied by. Of zones of one name, the smallest.", []string{"zone"}, nil),
	signal: prometheus.NewDesc("caddy_sliding_window_load_signal_ratio",
		"Share of the CPU time, or of the memory, that this Caddy may use and that is used; as zones with load see it. Not there while it is not known.", []string{"signal"}, nil),
	latency: prometheus.NewDesc("caddy_sliding_window_load_latency_seconds",
		"Time to the status of an answer in a zone with load, of which nine tenths are not slower. Not there while there are too few requests. Of zones of one name, the longest.", []string{"zone"}, nil),
}

type loadCollector struct{ factor, signal, latency *prometheus.Desc }

// Describe implements prometheus.Collector.
func (c loadCollector) Describe(all chan<- *prometheus.Desc) {
	all <- c.factor
	all <- c.signal
	all <- c.latency
}

// Collect implements prometheus.Collector.
func (c loadCollector) Collect(all chan<- prometheus.Metric) {
	factors, latencies, signals := make(map[string]float64), make(map[string]float64), make(map[string]float64)
	for _, one := range zoneLoads() {
		if f, ok := factors[one.Zone]; !ok || one.Factor < f {
			factors[one.Zone] = one.Factor
		}
		for name, value := range one.Signals {
			if name == load.Latency.String() {
				latencies[one.Zone] = max(latencies[one.Zone], value)
			} else {
				signals[name] = value
			}
		}
	}
	for zone, f := range factors {
		all <- prometheus.MustNewConstMetric(c.factor, prometheus.GaugeValue, f, zone)
	}
	for zone, seconds := range latencies {
		all <- prometheus.MustNewConstMetric(c.latency, prometheus.GaugeValue, seconds, zone)
	}
	for name, value := range signals {
		all <- prometheus.MustNewConstMetric(c.signal, prometheus.GaugeValue, value, name)
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
