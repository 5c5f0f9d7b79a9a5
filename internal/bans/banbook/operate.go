package banbook

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
)

// Entry is a ban that is in force. Its times are of the store's clock.
type Entry struct {
	control.Ban
	name string
}

// Look takes up what other Caddys have changed. It returns why the store cannot be asked.
func (b *Book) Look(ctx context.Context) error {
	for {
		more, _, err := b.call(ctx, nil)
		if err != nil || !more {
			return err
		}
	}
}

// List returns the bans that are in force, as far as this process knows: those that began first come first.
func (b *Book) List() (all []Entry) {
	now := b.now()
	b.known.each(func(name string, f *fact) {
		if !f.bans(now) {
			return
		}
		e := Entry{name: name, Ban: control.Ban{
			Zone: f.Zone, KeyHash: f.KeyHash, CIDR: f.Network, Shadow: f.Shadow, Level: f.Level, Left: float64(f.ends-now) / 1000,
			Began: time.UnixMilli(f.Began).UTC(), Until: time.UnixMilli(f.Record.Until).UTC(),
		}}
		if f.KeyHash == "" && f.Network == "" {
			e.Key = &f.Key
		}
		if f.Began != f.Last { // no strike began it
			_ = json.Unmarshal([]byte(f.Record.About), &e.Why) // that of an older or newer version may be another one
		}
		all = append(all, e)
	})
	slices.SortFunc(all, func(a, b Entry) int {
		if c := a.Began.Compare(b.Began); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return all
}

// Count adds to n how many bans are in force, by zone, without those in shadow.
func (b *Book) Count(n map[string]int) {
	now := b.now()
	b.known.each(func(_ string, f *fact) {
		if f.bans(now) && !f.Shadow {
			n[f.Zone]++
		}
	})
}

// Is reports whether the entry is of a key, which may be under a former secret.
func (b *Book) Is(e *Entry, zone, key string) bool {
	return e.name == string(b.names.of(zone, key, false)) || e.name == string(b.names.formerly(zone, key, false))
}

// SetKey bans a key, and SetNetwork a network, from now on for a time; keep is how long the level stays after that.
func (b *Book) SetKey(ctx context.Context, zone, key string, length, keep time.Duration, why control.Why) error {
	w := bans.Write{Member: string(b.names.of(zone, key, false)), Former: string(b.names.formerly(zone, key, false))}
	return b.set(ctx, zone, w, length, keep, why)
}

// SetNetwork bans the keys of a network.
func (b *Book) SetNetwork(ctx context.Context, zone, network string, length, keep time.Duration, why control.Why) error {
	return b.set(ctx, zone, bans.Write{Member: networkName(zone, network)}, length, keep, why)
}

func (b *Book) set(ctx context.Context, zone string, w bans.Write, length, keep time.Duration, why control.Why) error {
	about, _ := json.Marshal(why) // strings always marshal
	w.Op, w.For, w.Keep, w.About = bans.Set, length.Milliseconds(), keep.Milliseconds(), string(about)
	more, _, err := b.call(ctx, []bans.Write{w})
	if err != nil {
		return err
	}
	if more {
		err = b.Look(ctx)
	}
	metrics.BansTotal.WithLabelValues(zone, "operator").Inc()
	b.announce(w.Member, "a key was banned by an operator", why)
	return err
}

// Lift ends bans. It returns how many were in force until then.
func (b *Book) Lift(ctx context.Context, entries []Entry, why control.Why) (lifted int, err error) {
	of := make(map[string]int) // by zone
	for some := range slices.Chunk(entries, mostWrites) {
		writes := make([]bans.Write, len(some))
		for i := range some {
			writes[i] = bans.Write{Op: bans.Lift, Member: some[i].name}
		}
		var done []bool
		if _, done, err = b.call(ctx, writes); err != nil {
			break
		}
		for i, is := range done {
			if is {
				of[some[i].Zone]++
				lifted++
			}
		}
	}
	for zone, n := range of {
		metrics.BanLiftsTotal.WithLabelValues(zone).Add(float64(n))
		events.Emit(events.BanLifted, map[string]any{"zone": zone, "bans": n, "by": why.By, "reason": why.Reason})
		storestate.Logger(b.name).Info("bans were lifted by an operator",
			append([]zap.Field{zap.String("zone", zone), zap.Int("bans", n)}, why.Fields()...)...)
	}
	if err == nil && lifted > 0 {
		err = b.Look(ctx)
	}
	return lifted, err
}
