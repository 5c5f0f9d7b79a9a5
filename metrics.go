package slidingwindow

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// The collectors live as long as the process, so that a reload does not reset
// them; every configuration registers them with its own registry. Labels come
// from the configuration, never from requests.
var (
	decisionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "decisions_total",
		Help: "Decisions by zone and outcome: allowed, denied, or failed_open and failed_closed while the store was away. Those of zones that do not deny begin with shadow_.",
	}, []string{"zone", "outcome"})

	decisionSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "decision_seconds",
		Help:    "Time that a store took to decide on a request. Store \"local\" decides while a remote store is away.",
		Buckets: []float64{1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5},
	}, []string{"store"})

	storeErrorsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_errors_total",
		Help: "Requests on which a store did not decide, by reason: away, refused by its server, busy while too many requests wait for it, or foreign: no counter.",
	}, []string{"store", "reason"})

	noValueTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "empty_values_total",
		Help: "Requests on which placeholders of an option of a zone had no value, by option: key, limit or cost.",
	}, []string{"zone", "option"})

	settledTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "settled_units_total",
		Help: "Units of zones with count_if or settle whose requests were answered, by direction: kept or given_back of what was reserved, excess above it, or excess that was lost.",
	}, []string{"zone", "direction"})

	settleErrorsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "settle_errors_total",
		Help: "Requests of zones with count_if or settle whose units stay as they were charged, by reason: unknown if the store may have corrected them, or failed.",
	}, []string{"zone", "reason"})

	settleMissingTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "settle_missing_total",
		Help: "Requests of zones with settle whose answers did not tell what they cost, by reason: no_usage, aborted, encoded or too_long.",
	}, []string{"zone", "reason"})

	settleSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "settle_seconds",
		Help:    "Time from the decision on a request of a zone with count_if or settle until the store has what it cost.",
		Buckets: []float64{1e-3, 1e-2, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
	}, []string{"zone"})

	storeOpen = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "breaker_open",
		Help: "1 while a store, or a node of a Cluster, is not asked because it does not answer. Node is empty for the store as a whole.",
	}, []string{"store", "node"})

	storeClockOffset = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_clock_offset_seconds",
		Help: "The clock of a store's server less that of this Caddy, as far as a round trip tells.",
	}, []string{"store"})

	storeMemory = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_memory_bytes",
		Help: "Memory that a store's server uses, where the user may ask INFO; in a Cluster, of the fullest node.",
	}, []string{"store"})

	storeMemoryMax = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_memory_max_bytes",
		Help: "Memory that a store's server may use, where the user may ask INFO; 0 without a maximum.",
	}, []string{"store"})
)

// registerMetrics adds the collectors to the registry of a configuration. Each
// handler does so; all but the first find them there.
func registerMetrics(ctx caddy.Context) error {
	registry := ctx.GetMetricsRegistry()
	for _, c := range []prometheus.Collector{decisionsTotal, decisionSeconds, storeErrorsTotal, noValueTotal, settledTotal, settleErrorsTotal, settleMissingTotal, settleSeconds, storeOpen, storeClockOffset, storeMemory, storeMemoryMax, topCollector{}} {
		if err := registry.Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return err
		}
	}
	return nil
}

// zoneCounters are looked up once, at load.
type zoneCounters struct {
	allowed, denied, failedOpen, failedClosed prometheus.Counter
	empty                                     [len(valueOptions)]prometheus.Counter
	settled                                   settledCounters
}

// settledCounters are those of a zone with count_if or settle.
type settledCounters struct {
	kept, givenBack, excess, lost prometheus.Counter                  // units
	unknown, failed               prometheus.Counter                  // requests
	missing                       map[usage.Reason]prometheus.Counter // with settle
	seconds                       prometheus.Observer
}

func newSettledCounters(z *Zone) settledCounters {
	zone := z.Name
	c := settledCounters{
		kept:      settledTotal.WithLabelValues(zone, "kept"),
		givenBack: settledTotal.WithLabelValues(zone, "given_back"),
		excess:    settledTotal.WithLabelValues(zone, "excess"),
		lost:      settledTotal.WithLabelValues(zone, "lost"),
		seconds:   settleSeconds.WithLabelValues(zone),
		unknown:   settleErrorsTotal.WithLabelValues(zone, "unknown"),
		failed:    settleErrorsTotal.WithLabelValues(zone, "failed"),
	}
	if z.Settle != nil {
		c.missing = make(map[usage.Reason]prometheus.Counter)
		for _, reason := range []usage.Reason{usage.NoUsage, usage.Aborted, usage.Encoded, usage.TooLong} {
			c.missing[reason] = settleMissingTotal.WithLabelValues(zone, string(reason))
		}
	}
	return c
}

func newZoneCounters(zone string) zoneCounters {
	c := zoneCounters{
		allowed:      decisionsTotal.WithLabelValues(zone, "allowed"),
		denied:       decisionsTotal.WithLabelValues(zone, "denied"),
		failedOpen:   decisionsTotal.WithLabelValues(zone, "failed_open"),
		failedClosed: decisionsTotal.WithLabelValues(zone, "failed_closed"),
	}
	for i, o := range valueOptions {
		c.empty[i] = noValueTotal.WithLabelValues(zone, o.name)
	}
	return c
}

// shadowCounters count what a zone would have decided on requests that it may not deny.
type shadowCounters struct {
	allowed, denied, failedOpen, failedClosed, dropped prometheus.Counter
}

func newShadowCounters(zone string) shadowCounters {
	return shadowCounters{
		allowed:      decisionsTotal.WithLabelValues(zone, "shadow_allowed"),
		denied:       decisionsTotal.WithLabelValues(zone, "shadow_denied"),
		failedOpen:   decisionsTotal.WithLabelValues(zone, "shadow_failed_open"),
		failedClosed: decisionsTotal.WithLabelValues(zone, "shadow_failed_closed"),
		dropped:      decisionsTotal.WithLabelValues(zone, "shadow_dropped"),
	}
}

// count counts what was decided. A zone that would have let a request pass which
// another one denied is not counted: nothing was spent on it.
func (req *request) count() {
	req.noteTop()
	if req.keyless != nil {
		req.keyless.counters.denied.Inc()
		return
	}
	for i, z := range req.zones {
		switch {
		case req.allowed:
			z.counters.allowed.Inc()
		case !window.Allowed(req.decisionsOf(i)):
			z.counters.denied.Inc()
		}
	}
}
