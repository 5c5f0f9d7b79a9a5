// Package metrics has the metrics that code counts in. They live as long as the process. Those that tell
// a state when they are asked are beside that state.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// The collectors live as long as the process, so that a reload does not reset
// them; every configuration registers them with its own registry. Labels come
// from the configuration, never from requests.
var (
	DecisionsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "decisions_total",
		Help: "Decisions by zone and outcome: allowed, denied, or failed_open and failed_closed while the store was away. Those of zones that do not deny begin with shadow_.",
	}, []string{"zone", "outcome"})

	UnitsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "units_total",
		Help: "Units that requests wanted to spend, by zone and outcome as in decisions_total. What those of zones with settle really cost is in settled_units_total.",
	}, []string{"zone", "outcome"})

	NearLimitTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "near_limit_total",
		Help: "Requests that passed, and after which 80 % or more of a limit of the zone was used.",
	}, []string{"zone"})

	UsedRatio = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "used_ratio",
		Help:    "How much of its tightest limit a key has used after a decision of the zone, 1 for all.",
		Buckets: []float64{0.25, 0.5, 0.8, 0.9, 1},
	}, []string{"zone"})

	DecisionSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "decision_seconds",
		Help:    "Time that a store took to decide on a request. Store \"local\" decides while a remote store is away.",
		Buckets: []float64{1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5},
	}, []string{"store"})

	StoreErrorsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_errors_total",
		Help: "Requests on which a store did not decide, by reason: away, refused by its server, busy while too many requests wait for it, or foreign: no counter.",
	}, []string{"store", "reason"})

	NoValueTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "empty_values_total",
		Help: "Requests on which placeholders of an option of a zone had no value, by option: key, limit or cost.",
	}, []string{"zone", "option"})

	SettledTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "settled_units_total",
		Help: "Units of zones with count_if or settle whose requests were answered, by direction: kept or given_back of what was reserved, excess above it, or excess that was lost.",
	}, []string{"zone", "direction"})

	SettleErrorsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "settle_errors_total",
		Help: "Requests of zones with count_if or settle whose units stay as they were charged, by reason: unknown if the store may have corrected them, or failed.",
	}, []string{"zone", "reason"})

	SettleMissingTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "settle_missing_total",
		Help: "Requests of zones with settle whose answers did not tell what they cost, by reason: no_usage, aborted, encoded or too_long.",
	}, []string{"zone", "reason"})

	UnreadBodiesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "unread_bodies_total",
		Help: "Requests of zones with count_if or settle whose bodies were not read before the decision, by reason: late or broken, which are refused, or no_room, which are decided on without.",
	}, []string{"zone", "reason"})

	SettleSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "settle_seconds",
		Help:    "Time from the decision on a request of a zone with count_if or settle until the store has what it cost.",
		Buckets: []float64{1e-3, 1e-2, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600},
	}, []string{"zone"})

	BansTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "bans_total",
		Help: "Bans of a zone that began, by reason: denials, operator, or shadow in a zone that does not deny. Each is counted by the Caddy that began it.",
	}, []string{"zone", "reason"})

	BannedRequestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "banned_requests_total",
		Help: "Requests that a ban denied. They are among those that decisions_total has as denied.",
	}, []string{"zone"})

	BanLiftsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "ban_lifts_total",
		Help: "Bans of a zone that an operator ended by this Caddy.",
	}, []string{"zone"})

	OverridesHeld = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "overrides",
		Help: "Overrides that this Caddy knows of a store.",
	}, []string{"store"})

	OverrideMisfitsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "override_misfits_total",
		Help: "Overrides that were not applied as they do not fit their zone: once a record, and for a factor that is too large for a dynamic limit once a request.",
	}, []string{"zone"})

	OverridesNotApplied = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "overrides_not_applied",
		Help: "Overrides of a zone that hold now and are not applied, as they do not fit it as it is configured here.",
	}, []string{"store", "zone"})

	OverrideErrorsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "override_errors_total",
		Help: "Failures to keep overrides, by reason: away if a store could not be asked, lost if it had lost some that this Caddy knows, foreign if their key holds other data, or storage.",
	}, []string{"store", "reason"})

	Concurrent = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "concurrent",
		Help: "Requests that are open in a zone with concurrent, in this Caddy. Those of zones that do not deny count, too.",
	}, []string{"zone"})

	ConcurrentHeldSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "concurrent_held_seconds",
		Help:    "Time for which requests held a slot of a zone with concurrent.",
		Buckets: []float64{0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600},
	}, []string{"zone"})

	ConcurrentReclaimedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "concurrent_reclaimed_total",
		Help: "Slots of zones with concurrent that were freed because the Caddy that held them was silent for the lease. Each is counted by the Caddy that found it.",
	}, []string{"zone"})

	StoreOpen = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "breaker_open",
		Help: "1 while a store, or a node of a Cluster, is not asked because it does not answer. Node is empty for the store as a whole.",
	}, []string{"store", "node"})

	StoreClockOffset = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_clock_offset_seconds",
		Help: "The clock of a store's server less that of this Caddy, as far as a round trip tells.",
	}, []string{"store"})

	StoreMemory = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_memory_bytes",
		Help: "Memory that a store's server uses, where the user may ask INFO; in a Cluster, of the fullest node.",
	}, []string{"store"})

	StoreMemoryMax = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_memory_max_bytes",
		Help: "Memory that a store's server may use, where the user may ask INFO; 0 without a maximum.",
	}, []string{"store"})

	StoreInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_info",
		Help: "1, with what a store's server is: its version, and whether it is standalone or a cluster.",
	}, []string{"store", "version", "mode"})

	StoreInstances = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "store_instances",
		Help: "Caddys that share a store, this one included, as they were last counted; with share or concurrent only.",
	}, []string{"store"})

	AlertFiring = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "alert",
		Help: "1 while the alert of a zone has fired and is not resolved. Zones of one name on several stores add up.",
	}, []string{"zone"})

	EventsDroppedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "events_dropped_total",
		Help: "Events that no handler heard of, as 64 others waited for slow handlers or Caddy stopped, by event.",
	}, []string{"event"})
)

// All are the metrics of this package.
var All = []prometheus.Collector{
	BansTotal, BanLiftsTotal, BannedRequestsTotal,
	DecisionsTotal, UnitsTotal, NearLimitTotal, UsedRatio, DecisionSeconds, StoreErrorsTotal, NoValueTotal,
	SettledTotal, SettleErrorsTotal, SettleMissingTotal, UnreadBodiesTotal, SettleSeconds,
	Concurrent, ConcurrentHeldSeconds, ConcurrentReclaimedTotal,
	StoreOpen, StoreClockOffset, StoreMemory, StoreMemoryMax, StoreInfo, StoreInstances,
	AlertFiring, EventsDroppedTotal,
	OverridesHeld, OverrideMisfitsTotal, OverridesNotApplied, OverrideErrorsTotal,
}
