package zone

import (
	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

// newRunning returns the zone for the registry and the admin API.
func newRunning(z *Live, o Options) *running.ActiveZone {
	r := &running.ActiveZone{
		Configured: z.Configured, Key: z.Key, EmptyKey: z.EmptyKey, Percent: z.Percent, Store: o.Store, Share: o.Share,
		Control: z.Control, Counters: z.Counters.DecisionCounters, Recorder: z.Recorder, Alerting: z.Alerting, Load: z.Load, Top: z.Top, Bans: z.Bans, Ban: z.Ban, Decider: z,
	}
	if z.Top != nil && z.Tiers != nil {
		r.TopOfTiers = make(map[string]*toptalkers.Tracker)
	}
	r.Configured.Store, r.Configured.OnError = o.Store.Name(), o.OnError
	if r.EmptyKey == compiled.EmptyShared {
		r.EmptyKey = ""
	}
	r.InBook = &overridebook.Subscriber{
		Name: z.Name, Longest: z.ShortestLookback(), Records: z.forOverrides, NotApplied: z.Counters.Misfits,
		Orders: &z.Control.Sync, ApplyRemote: r.ApplyRemote, InForce: z.Overrides, LogsKeys: o.LogsKeys,
	}
	return r
}
