package slidingwindow

import (
	"errors"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/internal/settler"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// collectors are all of them.
var collectors = append(slices.Clone(metrics.All), load.NewCollector(running.Loads), toptalkers.Collector{})

// registerMetrics adds the collectors to the registry of a configuration. Each
// handler does so; all but the first find them there.
func registerMetrics(ctx caddy.Context) error {
	registry := ctx.GetMetricsRegistry()
	for _, c := range collectors {
		if err := registry.Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return err
		}
	}
	return nil
}

// zoneCounters are looked up once, at load.
type zoneCounters struct {
	metrics.DecisionCounters
	settled settledCounters
}

// settledCounters are those of a zone with count_if or settle.
type settledCounters struct {
	zone    *settler.Account
	missing map[usage.Reason]prometheus.Counter // with settle
}

func newSettledCounters(z *liveZone) settledCounters {
	c := settledCounters{zone: settler.NewAccount(z.Name, func(key string, units int64) { z.top.Charged(key, units) })}
	if z.Settle != nil {
		c.missing = make(map[usage.Reason]prometheus.Counter)
		for _, reason := range []usage.Reason{usage.NoUsage, usage.Aborted, usage.Encoded, usage.TooLong} {
			c.missing[reason] = metrics.SettleMissingTotal.WithLabelValues(z.Name, string(reason))
		}
	}
	return c
}

// count counts what was decided. A zone that would have let a request pass which
// another one denied is not counted: nothing was spent on it.
func (req *request) count() {
	req.noteTop()
	if z := req.keyless; z != nil {
		z.counters.Denied.Count(z.c.Cost)
		z.recorder.Keyless()
		if req.denyingRule() != nil {
			z.recorder.Refused(req.overridden.key)
		}
		return
	}
	for i, z := range req.zones {
		c, ds := &req.charges[i], req.decisionsOf(i)
		switch {
		case req.allowed:
			z.counters.Allowed.Count(c.Cost)
			z.recorder.Passed(ds)
		case !window.Allowed(ds):
			z.counters.Denied.Count(c.Cost)
			z.recorder.Denied(c, ds)
		}
	}
}

// noteTop counts the request for the top talkers of its zones. Zones that settle count what a request
// has cost when that is known.
func (req *request) noteTop() {
	if req.keyless != nil {
		key := "" // or that of an override
		if req.denyingRule() != nil {
			key = req.overridden.key
		}
		req.keyless.top.Denied(key)
		return
	}
	for i, z := range req.zones {
		switch {
		case z.top == nil:
		case !req.allowed && !window.Allowed(req.decisionsOf(i)):
			z.top.Denied(req.charges[i].Key)
		case req.allowed && !z.settles():
			z.top.Charged(req.charges[i].Key, req.charges[i].Cost)
		}
	}
}
