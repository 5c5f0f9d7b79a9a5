package running

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Inspection returns what is said of a charge with these decisions, and with what Used tells. The rule is the override of its key; nil
// without one. The cause is why the store did not decide.
func (z *ActiveZone) Inspection(ctx context.Context, c *window.Charge, rule *overrides.Rule, needs Needs, ds []window.Decision, used []int64, by engine.Source, cause error) *control.Inspection {
	store, known := z.Store.Name(), ds[:len(ds)-needs.Looks]
	answer := &control.Inspection{
		Zone: c.Zone, Key: c.Key, Tier: z.Decider.TierOf(c.Key), Algorithm: z.Configured.Algorithm, DecidedBy: string(by), Limits: []control.LimitState{},
		Cost: needs.costOf(c), WouldPass: needs.verdict(known), NeedsRequest: needs.told(c.Policies, ds, used),
		Store: control.InspectedStore{Name: store, State: control.StateOK},
	}
	if by == engine.SourceStore {
		answer.DecidedBy, _, _ = strings.Cut(store, " ")
	}
	if n, ok := z.Store.Raw.(engine.CounterNamer); ok {
		answer.RedisKey = n.CounterName(*c)
	}
	if cause != nil {
		state := z.Store.State()
		answer.Store = control.InspectedStore{Name: store, State: control.StateAway, Since: state.Since, Cause: cmp.Or(state.Cause, cause.Error())}
	}
	answer.Enforce, _ = z.Enforced()
	if engine.IsHeld(c) && len(known) > 0 {
		answer.Concurrent = &control.HeldState{
			Max: c.Policies[0].Limit, Held: used[0], Remaining: ds[0].Remaining, Source: z.Decider.SourceOf(c, c.Policies[0]),
			RedisKey: answer.RedisKey, DecidedBy: answer.DecidedBy, Holders: []control.Holder{},
		}
		if by == engine.SourceStore {
			answer.Concurrent.Holders = z.Store.Holders(ctx, *c)
		}
		known = nil
	}
	for i := range known {
		state := z.limitState(c, c.Policies[i], &ds[i], used[i])
		if needs.Cost != "" {
			state.RetryAfter = nil
		}
		answer.Limits = append(answer.Limits, state)
	}
	z.noteOverride(answer, rule)
	return answer
}

// NoteBan completes what is said of a charge if its key is banned. Zones that mark requests have the bans of those that deny.
func (z *ActiveZone) NoteBan(answer *control.Inspection) {
	if z.Bans == nil || answer.Tier != "" {
		return
	}
	percent := z.Decider.Enforced()
	ban, is := z.Bans.Ban(answer.Key, percent != enforce.Mark && !enforce.IsEnforced(answer.Zone, answer.Key, percent))
	if !is {
		return
	}
	passes := false
	answer.WouldPass, answer.DecidedBy = &passes, control.SourceBan
	answer.Ban = &control.InspectedBan{Until: ban.Until.UTC().Format(time.RFC3339), Left: ban.Left.Seconds(), Level: ban.Level}
}

// limitState returns what is used of a limit.
func (z *ActiveZone) limitState(c *window.Charge, p window.Policy, d *window.Decision, used int64) control.LimitState {
	state := control.LimitState{
		Max: p.Limit, Window: normalize.Duration(p.Window), Used: used, Remaining: d.Remaining,
		ResetAfter: d.ResetAfter.Seconds(), Source: z.Decider.SourceOf(c, p),
	}
	if d.RetryAfter != window.Never {
		wait := d.RetryAfter.Seconds()
		state.RetryAfter = &wait
	}
	return state
}

// noteOverride completes what is said of a charge for the override of its key.
func (z *ActiveZone) noteOverride(answer *control.Inspection, rule *overrides.Rule) {
	if rule != nil {
		answer.Override = rule.Record
		for i := range answer.Limits {
			answer.Limits[i].Source = control.SourceOverride
		}
		if answer.Concurrent != nil {
			answer.Concurrent.Source = control.SourceOverride
		}
	} else if m := z.Store.Overrides.Misfit(z.InBook, answer.Key); m != nil {
		answer.Override, answer.Misfit = m.Record, m.Err.Error()
	}
}

// Overridden returns what is said of a charge on which an override decides.
func (z *ActiveZone) Overridden(c *window.Charge, rule *overrides.Rule, needs Needs) *control.Inspection {
	word, _ := z.Enforced()
	return &control.Inspection{
		Enforce: word, Zone: c.Zone, Key: c.Key, Tier: z.Decider.TierOf(c.Key), Algorithm: z.Configured.Algorithm, DecidedBy: control.SourceOverride, Limits: []control.LimitState{}, Cost: needs.costOf(c),
		WouldPass: &rule.Exempt, Override: rule.Record, Store: control.InspectedStore{Name: z.Store.Name(), State: control.StateOK},
	}
}
