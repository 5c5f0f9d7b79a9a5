package toptalkers

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
)

func newTopTenRatio() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "top_ten_ratio",
		Help: "Share that the ten keys with the most have at least, in zones with top_talkers: of the requests that were denied, or of the units that were charged, in the last one to two minutes.",
	}, []string{"zone", "by"})
}

// Collector tells what newTopTenRatio describes, as of when it is asked. A zone on several stores has the value of the store with the most.
type Collector struct{}

// Vectors returns the metrics of the Collector, without values.
func (Collector) Vectors() []prometheus.Collector { return []prometheus.Collector{newTopTenRatio()} }

// Describe implements prometheus.Collector.
func (Collector) Describe(ch chan<- *prometheus.Desc) { newTopTenRatio().Describe(ch) }

// Collect implements prometheus.Collector.
func (Collector) Collect(ch chan<- prometheus.Metric) {
	type label struct{ zone, by string }
	most := make(map[label]Top)
	for id, pairs := range zonepool.All[*pair]() {
		for _, p := range pairs {
			if p.tier != "" {
				continue
			}
			for _, by := range []string{"denied", "charged"} {
				top := p.by(by).Top(uptime.Now(), 10)
				if other, ok := most[label{id.Zone, by}]; !ok || top.Total > other.Total {
					most[label{id.Zone, by}] = top
				}
			}
		}
	}
	ratio := newTopTenRatio()
	for l, top := range most {
		ratio.WithLabelValues(l.zone, l.by).Set(top.TopTenRatio())
	}
	ratio.Collect(ch)
}
