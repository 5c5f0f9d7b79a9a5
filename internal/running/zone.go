// Package running has the zones that run in this process: which they are, and what each says of itself to
// operators, metrics and alerts.
package running

import (
	"maps"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/alert"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// ActiveZone is a zone of a handler. It keeps nothing of a caddy.Context. Fields that may be nil say so.
type ActiveZone struct {
	// Configured is the zone as it is configured. Fields that change while the zone runs are empty.
	Configured control.ZoneInfo
	Key        template.Key
	// EmptyKey is `skip` or `deny`; empty if requests without a key share one counter.
	EmptyKey string
	// Percent is the share of keys that the zone denies, as configured.
	Percent int64

	Store *openstore.SharedStore
	// Share is whether this Caddy divides the limits where it decides in the place of the store.
	Share bool

	// InBook is the zone as the book of overrides of its store knows it.
	InBook   *overridebook.Subscriber
	Control  *enforce.Control
	Counters metrics.DecisionCounters
	Recorder alert.Recorder
	Alerting *alert.Rule         // nil: no alert
	Load     *load.Limits        // nil: the limits do not follow the load
	Top      *toptalkers.Tracker // nil: no top talkers
	// TopOfTiers has the networks of tiers; nil without top talkers, and without tiers.
	TopOfTiers map[string]*toptalkers.Tracker
	Bans       *banbook.Zone // nil: there are no bans
	Ban        *compiled.Ban // nil as Bans

	Decider Decider
}

// Decider is what only the handler of a zone can tell. It is safe for concurrent use.
type Decider interface {
	// Charge returns what a request on a key would spend, as far as that is known without the request, and what is
	// not. The rule is the override of the key; nil without one. A key may be a network of a tier.
	Charge(key string) (c window.Charge, rule *overrides.Rule, needs Needs)
	// InTiers returns what a request with this charge spends in the tiers of the zone; nil without any.
	InTiers(c *window.Charge) []TierCharge
	// TierOf returns the tier of which a key is a network; empty for the keys of the zone itself.
	TierOf(key string) string
	// SourceOf returns where a limit of a charge comes from that no override has changed, such as [control.SourceConfig].
	SourceOf(c *window.Charge, p window.Policy) string
	// Enforced returns the percentage of keys whose requests the zone may deny now, [enforce.Exempt] or [enforce.Mark].
	Enforced() int64
	// Enforce enforces the zone as an order says, wherever the zone is used in this process. The mode config goes back to the
	// configuration.
	Enforce(o enforce.Order) error
}

// TierCharge is a charge in a tier, and the override of the network; nil without one.
type TierCharge struct {
	window.Charge
	Rule *overrides.Rule
}

// ID names the counters of the zone.
func (z *ActiveZone) ID() engine.ZoneID { return engine.ZoneID{Store: z.Store.ID, Zone: z.Name()} }

// Name returns the name of the zone.
func (z *ActiveZone) Name() string { return z.Configured.Name }

// State returns the zone as it is now.
func (z *ActiveZone) State() control.ZoneInfo {
	state := z.Configured
	state.Enforce, state.EnforceUntil = z.Enforced()
	if set := z.Control.Current(); set != nil && state.EnforceUntil != "" {
		state.EnforceReason = set.Reason
	}
	state.Outcomes = z.Counters.Outcomes()
	if state.Enforce != enforce.Word(enforce.All) {
		shadow := z.Control.Shadow()
		maps.Copy(state.Outcomes, shadow.Outcomes())
	}
	return state
}

// InBooks returns zones as the books of overrides know them, by store.
func InBooks(zones []*ActiveZone) map[*openstore.SharedStore][]*overridebook.Subscriber {
	all := make(map[*openstore.SharedStore][]*overridebook.Subscriber)
	for _, z := range zones {
		all[z.Store] = append(all[z.Store], z.InBook)
	}
	return all
}

// BooksOfBans returns the books of bans that zones use, each once.
func BooksOfBans(zones []*ActiveZone) (all []*banbook.Book) {
	for _, z := range zones {
		if z.Bans != nil && !slices.Contains(all, z.Store.Bans) {
			all = append(all, z.Store.Bans)
		}
	}
	return all
}
