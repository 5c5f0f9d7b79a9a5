package slidingwindow

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func init() {
	load.Process.Warn = func(s load.Signal, err error) {
		caddy.Log().Named("http.handlers.sliding_window").Warn("load cannot be measured by this signal; limits do not follow it", zap.String("signal", s.String()), zap.Error(err))
	}
}

// zoneLoad is how the limits of a zone follow the load.
type zoneLoad struct {
	*load.Zone
	sampler   *load.Sampler
	name      string
	algorithm window.Algorithm
	timed     bool            // whether it measures answer times
	base      []window.Policy // nil if a limit is dynamic
	now       atomic.Pointer[scaledLimits]
}

// scaledLimits are the limits at a factor.
type scaledLimits struct {
	factor   float64
	policies []window.Policy
	quotas   *answer.Quotas
}

// acquireLoad returns the load of a zone, which has been compiled. Factors outlive reloads. Release it with
// its sampler.
func acquireLoad(z *Zone, id zoneID) *zoneLoad {
	if z.Load == nil {
		return nil
	}
	l := &zoneLoad{sampler: load.Process, Zone: load.Process.Acquire(id.store+"\x00"+id.zone, z.Load.options), name: z.Name, algorithm: z.algorithm, base: z.policies}
	l.timed = z.Load.options.Uses(load.Latency)
	if l.base != nil {
		l.now.Store(&scaledLimits{1, z.policies, z.quotas})
	}
	return l
}

// limits returns those of a zone without a dynamic limit.
func (l *zoneLoad) limits() *scaledLimits {
	now := l.now.Load()
	if factor := l.Factor(); now.factor != factor {
		now = &scaledLimits{factor: factor, policies: slices.Clone(l.base)}
		l.scale(now.policies, factor)
		now.quotas = answer.NewQuotas(l.name, now.policies)
		l.now.Store(now)
	}
	return now
}

// scale scales limits. What the algorithm could not keep stays as it is.
func (l *zoneLoad) scale(policies []window.Policy, factor float64) {
	for i, p := range policies {
		if scaled := scale(p, factor); window.CheckPolicy(l.algorithm, scaled) == nil {
			policies[i] = scaled
		}
	}
}

// quotasOf returns what RateLimit fields say of limits that the zone has scaled, or nil if other
// limits hold by now.
func (l *zoneLoad) quotasOf(policies []window.Policy) *answer.Quotas {
	if l.base == nil {
		return nil
	}
	if now := l.now.Load(); &now.policies[0] == &policies[0] {
		return now.quotas
	}
	return nil
}

// scales reports whether the factor has changed a limit that a request had.
func (z *Zone) scales(p window.Policy) bool {
	if z.load == nil || p.Window > longestScaled {
		return false
	}
	if z.policies == nil {
		return z.load.Factor() != 1 && p.Limit != 0
	}
	return !slices.Contains(z.policies, p)
}

// reduced reports whether nothing but the load denies the request: as far as is known, the limits as
// they are configured have room for it. A cost above a limit that the factor made smaller waits for
// a window.
func (req *request) reduced() bool {
	reduced := req.keyless == nil
	for i, z := range req.zones {
		c, ds := &req.charges[i], req.decisionsOf(i)
		if window.Allowed(ds) {
			continue
		}
		if z.load == nil || req.ruleHere(z.Name) != nil {
			reduced = false
			continue
		}
		base := z.policies
		if base == nil {
			base, _ = z.expandLimits(req.repl)
		}
		for j := range ds {
			d := &ds[j]
			switch {
			case d.Allowed:
			case len(base) != len(ds): // placeholders have changed since
				reduced = false
			case d.Limit-d.Remaining > base[j].Limit-c.Cost:
				reduced = false
			case d.RetryAfter == window.Never:
				d.RetryAfter = c.Policies[j].Window
			}
		}
	}
	return reduced
}

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
