package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/recent"
)

// OutcomeCounter counts requests with an outcome, and the units that they wanted to spend.
type OutcomeCounter struct {
	prometheus.Counter
	Units prometheus.Counter
}

func OutcomeOf(zone, outcome string) OutcomeCounter {
	return OutcomeCounter{DecisionsTotal.WithLabelValues(zone, outcome), UnitsTotal.WithLabelValues(zone, outcome)}
}

// Count counts a request.
func (c OutcomeCounter) Count(units int64) {
	c.Inc()
	c.Units.Add(float64(units))
}

// DecisionCounters are the counters of a zone. They are looked up once, at load.
type DecisionCounters struct {
	Allowed, Denied, FailedOpen, FailedClosed OutcomeCounter
	Misfits                                   prometheus.Counter // of overrides
}

// NewDecisionCounters returns the counters of the zone of a name.
func NewDecisionCounters(name string) DecisionCounters {
	return DecisionCounters{
		Allowed:      OutcomeOf(name, "allowed"),
		Denied:       OutcomeOf(name, "denied"),
		FailedOpen:   OutcomeOf(name, "failed_open"),
		FailedClosed: OutcomeOf(name, "failed_closed"),
		Misfits:      OverrideMisfitsTotal.WithLabelValues(name),
	}
}

// Outcomes returns how many decisions there were of each kind, since the process began.
func (z *DecisionCounters) Outcomes() map[string]int64 {
	return outcomes(map[string]OutcomeCounter{
		"allowed": z.Allowed, "denied": z.Denied, "failed_open": z.FailedOpen, "failed_closed": z.FailedClosed,
	})
}

func outcomes(of map[string]OutcomeCounter) map[string]int64 {
	all := make(map[string]int64)
	for name, counter := range of {
		all[name] = counter.value()
	}
	return all
}

// value returns how many requests were counted.
func (c OutcomeCounter) value() int64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0
	}
	return int64(m.GetCounter().GetValue())
}

// Counts returns the decisions since the process began.
func (z *DecisionCounters) Counts() recent.Counts {
	c := recent.Counts{Denied: z.Denied.value() + z.FailedClosed.value()}
	c.Decisions = c.Denied + z.Allowed.value() + z.FailedOpen.value()
	return c
}

// ShadowCounters counts what a zone would have decided on requests that it may not deny.
type ShadowCounters struct {
	Allowed, Denied, FailedOpen, FailedClosed, Dropped OutcomeCounter
}

// NewShadowCounters returns the Shadow of the zone of a name.
func NewShadowCounters(name string) ShadowCounters {
	return ShadowCounters{
		Allowed:      OutcomeOf(name, "shadow_allowed"),
		Denied:       OutcomeOf(name, "shadow_denied"),
		FailedOpen:   OutcomeOf(name, "shadow_failed_open"),
		FailedClosed: OutcomeOf(name, "shadow_failed_closed"),
		Dropped:      OutcomeOf(name, "shadow_dropped"),
	}
}

// Outcomes returns how many requests there were of each kind, since the process began.
func (s *ShadowCounters) Outcomes() map[string]int64 {
	return outcomes(map[string]OutcomeCounter{
		"shadow_allowed": s.Allowed, "shadow_denied": s.Denied, "shadow_failed_open": s.FailedOpen,
		"shadow_failed_closed": s.FailedClosed, "shadow_dropped": s.Dropped,
	})
}

// Counts returns the decisions since the process began.
func (s *ShadowCounters) Counts() recent.Counts {
	c := recent.Counts{WouldDeny: s.Denied.value() + s.FailedClosed.value()}
	c.Decisions = c.WouldDeny + s.Allowed.value() + s.FailedOpen.value()
	return c
}
