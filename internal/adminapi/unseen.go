package adminapi

import (
	"context"
	"slices"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Warnings of an override that may select no key.
const (
	warnUncounted = "nothing is counted for this key now; check its spelling with inspect"
	warnNoAddress = "no key of this zone that was seen here is an address"
	warnAddresses = "a network selects addresses only; check that "
)

// unseen returns why a record that an operator sends may select no key; empty if the record may select a key. It asks the
// store for one key, as inspect does. The record must not hold yet, and must be as it was sent.
func unseen(ctx context.Context, z *running.ActiveZone, o *overrides.Record) string {
	switch {
	case o.CIDR != "":
		return unseenNetwork(z)
	case o.Key != nil || o.Values != nil:
		return unseenKey(ctx, z, o)
	}
	return ""
}

// unseenNetwork returns why a network may select no key of a zone.
func unseenNetwork(z *running.ActiveZone) string {
	seen := slices.DeleteFunc(z.Top.Snapshot(), func(k toptalkers.Key) bool { return k.Key == "" || k.Cut })
	switch {
	case z.Key.IsAddress() || slices.ContainsFunc(seen, func(k toptalkers.Key) bool { return overrides.IsAddress(k.Key) }):
		return ""
	case len(seen) > 0:
		return warnNoAddress
	}
	return warnAddresses + z.Configured.Key + " is one"
}

// unseenKey returns why a record may select a key that no request has.
func unseenKey(ctx context.Context, z *running.ActiveZone, o *overrides.Record) string {
	found, err := findCounter(control.Selector{Zone: o.Zone, Store: o.Store, Key: o.Key, Values: o.Values})
	if err != nil {
		return err.Error()
	}
	c := &found.charge
	if engine.IsHeld(c) { // a key without a request that is open
		return ""
	}
	if found.rule.Decides() || z.Decider.Enforced() == enforce.Exempt || slices.ContainsFunc(z.Top.Snapshot(), func(k toptalkers.Key) bool { return isKey(&k, c.Key) }) {
		return ""
	}
	ds, _, _, err := peekOf(z, c.Key)(ctx, []window.Charge{*c}, false, false)
	isUsed := func(d window.Decision) bool { return d.Remaining < d.Limit || d.ResetAfter > 0 }
	if err != nil || slices.ContainsFunc(ds, isUsed) {
		return ""
	}
	return warnUncounted
}

// isKey reports whether a top talker is a key, as far as it was kept.
func isKey(k *toptalkers.Key, key string) bool {
	return k.Key == key || k.Cut && strings.HasPrefix(key, k.Key)
}

// limitsOf returns the limits of a zone in words that do not hold under a record, as they are configured.
func limitsOf(z *running.ActiveZone, r *overrides.Record) string {
	var limits []string
	network := ""
	if key, ok := keyOf(z, r); ok {
		network = z.Decider.TierOf(key)
	}
	concurrentAlone := r.Limits == nil && r.Concurrent > 0
	for _, l := range z.Configured.Limits {
		is := !concurrentAlone && (l.Tier == network || network == "" && r.Limits == nil)
		if l.Concurrent {
			is = network == "" && (r.Limits == nil || r.Concurrent > 0)
		}
		if is {
			limits = append(limits, l.String())
		}
	}
	return strings.Join(limits, ", ")
}
