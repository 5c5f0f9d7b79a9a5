package fallback_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// partedRemote has a part for each zone, of which one is away.
type partedRemote struct{ *remote }

func (partedRemote) Parts(charges []window.Charge, names []string) []string {
	return append(names, charges[0].Zone)
}

func (r partedRemote) PingPart(_ context.Context, name string) error { return r.find(name) }

func (partedRemote) HasPart(string) bool { return true }

var _ engine.Parted = partedRemote{}

func (partedRemote) find(zone string) error {
	if zone == "away" {
		return errors.Join(window.ErrUnavailable, errors.New("gone"))
	}
	return nil
}

func (r partedRemote) TakeInto(ctx context.Context, _ []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	return r.Take(ctx, charges)
}

func (r partedRemote) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	if err := r.find(charges[0].Zone); err != nil {
		return nil, err
	}
	return r.remote.Take(ctx, charges)
}

// A guard that takes over while a part of the store is away does not ask for it, and asks the
// others.
func TestGuardWhilePartAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := fallback.NewCounts()
		var guards []*fallback.Guard
		for i := range 2 {
			g := fallback.New(partedRemote{newRemote()}, fallback.Options{Counts: counts})
			guards = append(guards, g)
			for n := range 5 {
				_, err := g.Take(t.Context(), []window.Charge{charge("away", "key", 10, time.Minute)})
				if open := errors.Is(err, breaker.ErrOpen); open != (i == 1 || n >= 3) {
					t.Errorf("guard %d, request %d: %v, asked: %v", i, n, err, !open)
				}
				if _, err := g.Take(t.Context(), []window.Charge{charge("there", "key", 10, time.Minute)}); err != nil {
					t.Errorf("guard %d, request %d to another part: %v", i, n, err)
				}
			}
			synctest.Wait()
		}
		for _, g := range guards {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
		g := fallback.New(partedRemote{newRemote()}, fallback.Options{Counts: counts})
		if _, err := g.Take(t.Context(), []window.Charge{charge("away", "key", 10, time.Minute)}); errors.Is(err, breaker.ErrOpen) {
			t.Errorf("a guard after the others: %v, want it to ask", err)
		}
		if err := errors.Join(g.Close(), counts.Close()); err != nil {
			t.Error(err)
		}
	})
}
