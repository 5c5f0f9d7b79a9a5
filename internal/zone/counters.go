package zone

import (
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/internal/settler"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

// collectors are all of them.
var collectors = append(slices.Clone(metrics.All), load.NewCollector(running.Loads), toptalkers.Collector{}, banbook.Collector{})

// RegisterMetrics adds the collectors to the registry of a configuration. Each
// handler does so; all but the first find them there.
func RegisterMetrics(registry *prometheus.Registry) error {
	for _, c := range collectors {
		if err := registry.Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return err
		}
	}
	return nil
}

// Counters are looked up once, at load.
type Counters struct {
	metrics.DecisionCounters
	Banned  prometheus.Counter                  // nil without ban
	Open    prometheus.Gauge                    // requests that hold a slot; nil without concurrent
	Held    prometheus.Observer                 // seconds for which they did
	Settled *settler.Account                    // nil without count_if and settle
	Missing map[usage.Reason]prometheus.Counter // with settle
}

func newCounters(z *Live) Counters {
	c := Counters{DecisionCounters: metrics.NewDecisionCounters(z.Name)}
	if z.Ban != nil {
		c.Banned = metrics.BannedRequestsTotal.WithLabelValues(z.Name)
	}
	if z.Held || z.Concurrent != nil {
		c.Open, c.Held = metrics.Concurrent.WithLabelValues(z.Name), metrics.ConcurrentHeldSeconds.WithLabelValues(z.Name)
		metrics.ConcurrentReclaimedTotal.WithLabelValues(z.Name) // so that it is there before the first is
	}
	if z.Settles() {
		c.Settled = settler.NewAccount(z.Name, func(key string, units int64) { z.Top.Charged(key, units) })
	}
	if z.Settle != nil {
		c.Missing = make(map[usage.Reason]prometheus.Counter)
		for _, reason := range []usage.Reason{usage.NoUsage, usage.Aborted, usage.Encoded, usage.TooLong} {
			c.Missing[reason] = metrics.SettleMissingTotal.WithLabelValues(z.Name, string(reason))
		}
	}
	return c
}
