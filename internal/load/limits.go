package load

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// LongestScaled is the longest window whose limit follows the load. A longer one remembers what
// passed before, so that a smaller limit denies everything until that has left the window.
const LongestScaled = time.Minute

// Limits are those of a zone, which follow its load. They are safe for concurrent use. Nil Limits are those of a zone
// that follows no load: Start, Stop, Timed and Scales allow for them.
type Limits struct {
	*Controller
	name      string // of the policies; see answer.NewQuotas
	algorithm window.Algorithm
	base      []window.Policy // nil if a limit is dynamic
	now       atomic.Pointer[scaledLimits]
}

// scaledLimits are the limits at a factor.
type scaledLimits struct {
	factor   float64
	policies []window.Policy
	quotas   *answer.Quotas
}

// LimitsOf returns the limits of the zone of a hold, or of one of its tiers, whose policies have a name. base are those that are
// configured, nil if one of them is dynamic. Factors outlive reloads.
func LimitsOf(h *zonepool.Hold, o Options, name string, algorithm window.Algorithm, base []window.Policy) *Limits {
	l := &Limits{Controller: zonepool.Get(h, o, func() *Controller { return Process.New(h.Zone, o) }), name: name, algorithm: algorithm, base: base}
	if l.base != nil {
		l.now.Store(&scaledLimits{1, base, answer.NewQuotas(name, base)})
	}
	return l
}

// Start makes the limits follow the load until Stop.
func (l *Limits) Start() {
	if l != nil {
		l.sampler.Start(l.Controller)
	}
}

// Stop undoes Start.
func (l *Limits) Stop() {
	if l != nil {
		l.sampler.Stop(l.Controller)
	}
}

// Timed reports whether answer times are measured.
func (l *Limits) Timed() bool { return l != nil && l.latencies != nil }

// Now returns the limits of a zone without a dynamic limit.
func (l *Limits) Now() []window.Policy {
	now := l.now.Load()
	if factor := l.Factor(); now.factor != factor {
		now = &scaledLimits{factor: factor, policies: slices.Clone(l.base)}
		l.scale(now.policies, factor)
		now.quotas = answer.NewQuotas(l.name, now.policies)
		l.now.Store(now)
	}
	return now.policies
}

// Scale scales limits of a request.
func (l *Limits) Scale(policies []window.Policy) { l.scale(policies, l.Factor()) }

// scale scales limits. What the algorithm could not keep stays as it is.
func (l *Limits) scale(policies []window.Policy, factor float64) {
	for i, p := range policies {
		if scaled := Scale(p, factor); window.CheckPolicy(l.algorithm, scaled) == nil {
			policies[i] = scaled
		}
	}
}

// Scale returns a limit times a factor. 0 stays 0, and no other becomes 0.
func Scale(p window.Policy, factor float64) window.Policy {
	if factor == 1 || p.Limit == 0 || p.Window > LongestScaled {
		return p
	}
	most := window.MaxProduct / p.Window.Milliseconds()
	p.Limit = int64(min(max(1, math.Round(float64(p.Limit)*factor)), float64(most)))
	return p
}

// QuotasOf returns what RateLimit fields say of limits that Now has returned, or nil if other
// limits hold by now.
func (l *Limits) QuotasOf(policies []window.Policy) *answer.Quotas {
	if l.base == nil {
		return nil
	}
	if now := l.now.Load(); &now.policies[0] == &policies[0] {
		return now.quotas
	}
	return nil
}

// Scales reports whether the factor has changed a limit that a request had.
func (l *Limits) Scales(p window.Policy) bool {
	if l == nil || p.Window > LongestScaled {
		return false
	}
	if l.base == nil {
		return l.Factor() != 1 && p.Limit != 0
	}
	return !slices.Contains(l.base, p)
}

// State returns how the zone follows the load now.
func (l *Limits) State() control.ZoneLoad {
	return control.ZoneLoad{Zone: l.id.Zone, Store: l.id.Store.Name, Factor: round(l.Factor()), Signals: l.signals()}
}

// signals returns those that the zone uses, as far as they are known.
func (l *Limits) signals() map[string]float64 {
	o, values := l.Options(), make(map[string]float64)
	for _, signal := range []Signal{CPU, Memory} {
		if value, known := l.sampler.Latest(signal); known && o.Uses(signal) {
			values[signal.String()] = round(value)
		}
	}
	if p, known := l.Latency(); known {
		values[Latency.String()] = round(p.Seconds())
	}
	return values
}

// round keeps four decimals.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }
