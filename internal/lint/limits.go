package lint

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func unreachable(_ *Config, z *zone) []problem {
	if z.flow.over != "" {
		return []problem{{what: "no request reaches the zone: " + z.flow.over}}
	}
	if f := z.within(); f.over != "" && len(z.UnseenPaths) == 0 {
		return []problem{{what: "the zone counts no request: " + f.over, option: "match"}}
	}
	return nil
}

// behindLogin finds zones that count 401 alone, behind a handler that answers it.
func behindLogin(_ *Config, z *zone) []problem {
	if z.CountIf == nil || !z.flow.authenticated || !slices.Equal(z.CountIf.StatusCode, []int{http.StatusUnauthorized}) {
		return nil
	}
	return []problem{{what: "count_if status 401 counts no failed log-in of the authentication before the zone", option: "count_if"}}
}

func lostPaths(_ *Config, z *zone) (all []problem) {
	for _, path := range z.UnseenPaths {
		all = append(all, problem{what: fmt.Sprintf("%s never matches, as %s is no longer at the beginning of the path", path, z.TakenOff), option: "match.path"})
	}
	return all
}

// isExact reports whether the zone counts each unit for exactly a window, so that what one limit admits tells what
// another one sees. settle charges above limits, and load changes them.
func (z *ZoneFacts) isExact() bool {
	switch z.Algorithm.(type) {
	case window.Zset, window.Log, window.Stream:
		return z.Settle == nil && z.Scaling == nil
	}
	return false
}

// dominates reports whether what a lets pass never reaches b. A window of b is covered by a number of
// windows of a, each with the limit of a at most.
func dominates(a, b window.Policy) bool {
	windows := int64((b.Window + a.Window - 1) / a.Window)
	return a.Limit <= b.Limit/windows
}

func neverDecides(_ *Config, z *zone) (all []problem) {
	if z.Fallback.Window > 0 && z.Policies != nil {
		all = append(all, problem{what: fmt.Sprintf("fallback %s is never used: no limit has a placeholder", policy(z.Fallback)), cure: "take fallback out", option: "fallback"})
	}
	if !z.isExact() {
		return all
	}
	limits := z.AllLimits()
	for i := range limits {
		b := &limits[i]
		if b.Dynamic() {
			continue
		}
		for j := range limits {
			a := &limits[j]
			counts := a.Tier == b.Tier || j > i // a network has what its address has
			if j != i && counts && !a.Dynamic() && dominates(a.Known, b.Known) && (j < i || a.Tier != b.Tier || !dominates(b.Known, a.Known)) {
				all = append(all, problem{what: fmt.Sprintf("limit %s is never reached, as limit %s is reached first", limitText(b), limitText(a)), option: "limit", nth: i})
				break
			}
		}
		if b.Tier != "" {
			continue
		}
		if at := slices.IndexFunc(z.handler.Zones, func(o *ZoneFacts) bool { return z.isBehind(o, b.Known) }); at >= 0 {
			all = append(all, problem{what: fmt.Sprintf("limit %s is never reached, as zone %s with the same key denies first", policy(b.Known), z.handler.Zones[at].Name), option: "limit", nth: i})
		}
	}
	return all
}

// isBehind reports whether a limit of z is never reached because another zone of the handler denies first.
func (z *zone) isBehind(o *ZoneFacts, limit window.Policy) bool {
	if o == z.ZoneFacts || !o.isExact() || o.Percent != enforce.All || o.CountIf != nil || o.Receipts != "" ||
		o.KeyText != z.KeyText || o.Key.Prefixes != z.Key.Prefixes || o.Key.FoldCase != z.Key.FoldCase || o.EmptyKey != z.EmptyKey ||
		o.Spends.String() != z.Spends.String() || o.MatcherText != "" && o.MatcherText != z.MatcherText {
		return false
	}
	return slices.ContainsFunc(o.Policies, func(p window.Policy) bool { return dominates(p, limit) && !(dominates(limit, p) && o.Name > z.Name) })
}

// policy writes a limit as a Caddyfile has it.
func policy(p window.Policy) string { return fmt.Sprintf("%d %s", p.Limit, duration(p.Window)) }

// duration writes a window with one unit if it can.
func duration(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d%u.unit == 0 {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return d.String()
}

func costAboveLimit(_ *Config, z *zone) (all []problem) {
	if z.Settle != nil || z.Spends.Dynamic { // settle reserves the smallest limit at most
		return nil
	}
	for i, l := range z.AllLimits() {
		if !l.DynamicMax() && l.Known.Limit > 0 && z.Cost > l.Known.Limit {
			all = append(all, problem{what: fmt.Sprintf("cost %d is above limit %s", z.Cost, limitText(&l)), option: "limit", nth: i})
		}
	}
	return all
}

func withoutEffect(_ *Config, z *zone) (all []problem) {
	if z.handler.IsRemote {
		return nil
	}
	if z.Lease.Units > 0 {
		all = append(all, problem{what: fmt.Sprintf("lease %d does nothing", z.Lease.Units), option: "lease"})
	}
	if z.Pack > 0 {
		all = append(all, problem{what: fmt.Sprintf("pack %d does nothing", z.Pack), option: "pack"})
	}
	if z.handler.Share {
		all = append(all, problem{what: "share does nothing", handler: "on_error.share"})
	}
	return all
}

func notDivisible(_ *Config, z *zone) (all []problem) {
	if !z.handler.IsRemote {
		return nil
	}
	concurrent, policies := z.Concurrent, z.Policies
	if z.Held {
		concurrent, policies = z.Settings, nil
	}
	if concurrent != nil && z.handler.Share && slices.ContainsFunc(concurrent.Policies, func(p window.Policy) bool { return p.Limit == 1 }) {
		all = append(all, problem{what: "concurrent 1 cannot be shared: each Caddy lets one request pass while the store is away", option: "concurrent", cure: "raise the number, or write on_error deny"})
	}
	for i, p := range policies {
		if p.Limit > 0 && z.Lease.Units > p.Limit/2 {
			all = append(all, problem{
				what: fmt.Sprintf("lease %d is more than half of limit %s: while one Caddy holds it, the others deny", z.Lease.Units, policy(p)), option: "lease",
				cure: fmt.Sprintf("write lease %d or less, below the limit divided by the number of Caddys", max(1, p.Limit/4)),
			})
			break
		}
		if z.handler.Share && p.Limit == 1 {
			all = append(all, problem{
				what: fmt.Sprintf("limit %s cannot be shared: each Caddy lets one unit pass while the store is away", policy(p)), option: "limit", nth: i,
				cure: "raise the limit, or write on_error deny",
			})
		}
	}
	return all
}

func slowerThanServer(_ *Config, z *zone) []problem {
	if z.server == nil || z.server.WriteTimeout <= 0 || z.handler.Store.Timeout < time.Duration(z.server.WriteTimeout) {
		return nil
	}
	return []problem{{
		what:  fmt.Sprintf("timeout %s of the store is not below the write timeout of the server, %s", z.handler.Store.Timeout, time.Duration(z.server.WriteTimeout)),
		store: "timeout",
	}}
}

// longestKept is the longest window that restarts of a process do not make useless.
const longestKept = 24 * time.Hour

func forgets(_ *Config, z *zone) (all []problem) {
	if z.handler.IsRemote {
		return nil
	}
	for i, l := range z.AllLimits() {
		if !l.DynamicWindow() && l.Known.Window > longestKept {
			all = append(all, problem{what: fmt.Sprintf("a restart gives each client all of limit %s again", limitText(&l)), option: "limit", nth: i})
		}
	}
	return all
}

// limitText writes a limit of which the number may not be known.
func limitText(l *compiled.LimitTemplate) string {
	switch {
	case l.Dynamic():
		return "of " + duration(l.Known.Window)
	case l.Tier != "":
		return policy(l.Known) + " tier " + l.Tier
	}
	return policy(l.Known)
}

func clearSecrets(_ *Config, z *zone) (all []problem) {
	for _, option := range z.handler.Store.Secrets {
		all = append(all, problem{what: option + " of store redis is in clear text", store: option})
	}
	return all
}

// largestZset is the limit from which on zset is large: docs/redis.md#sizing.
const largestZset = 1000

func largeEntries(_ *Config, z *zone) (all []problem) {
	if _, ok := z.Algorithm.(window.Zset); !ok || !z.handler.IsRemote || z.Cost != 1 || z.Spends.Dynamic || z.Settle != nil {
		return nil
	}
	for i, l := range z.AllLimits() {
		if !l.Dynamic() && l.Known.Limit >= largestZset {
			all = append(all, problem{what: fmt.Sprintf("zset with limit %s takes up to %d bytes of Redis for each key", limitText(&l), l.Known.Limit*zsetBytes), option: "limit", nth: i})
		}
	}
	return all
}

// zsetBytes is what an entry of zset takes in Redis.
const zsetBytes = 119

func sharedByName(c *Config, z *zone) []problem {
	first := slices.IndexFunc(c.zones, func(o *zone) bool { return o.Name == z.Name })
	apart := func(o *zone) bool { return o.Name == z.Name && o.handler.ID != z.handler.ID }
	all := c.source.Named(z.Name, nil)
	if c.zones[first] != z || slices.ContainsFunc(c.zones, apart) {
		return nil
	}
	for _, o := range all {
		if at := all[0].At; o.At != at {
			return []problem{{what: fmt.Sprintf("zone %s counts together with the one at %s:%d", z.Name, at.File, at.Line), at: o.At}}
		}
	}
	return nil
}
