package load

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
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

// Collector tells the load of the zones that run, as of the scrape.
type Collector struct {
	// zones returns the load of the zones that run.
	zones func() []control.ZoneLoad

	mu sync.Mutex // held while the metrics are set
}

// NewCollector returns one that asks zones for the load of the zones that run.
func NewCollector(zones func() []control.ZoneLoad) *Collector { return &Collector{zones: zones} }

// Vectors returns the metrics of the Collector.
func (*Collector) Vectors() []prometheus.Collector {
	return []prometheus.Collector{loadFactor, loadSignal, loadLatency}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(all chan<- *prometheus.Desc) {
	for _, v := range c.Vectors() {
		v.Describe(all)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(all chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range []*prometheus.GaugeVec{loadFactor, loadSignal, loadLatency} {
		v.Reset()
	}
	factors := make(map[string]float64)
	for _, one := range c.zones() {
		if f, ok := factors[one.Zone]; !ok || one.Factor < f { // of zones on several stores, the smallest
			factors[one.Zone] = one.Factor
			loadFactor.WithLabelValues(one.Zone).Set(one.Factor)
		}
		for name, value := range one.Signals {
			if name == Latency.String() {
				loadLatency.WithLabelValues(one.Zone).Set(value)
			} else {
				loadSignal.WithLabelValues(name).Set(value)
			}
		}
	}
	for _, v := range c.Vectors() {
		v.Collect(all)
	}
}
