package fallback_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func (r *remote) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	return windowtest.TakeEach(ctx, r.Take, requests)
}

// What a batch was told is known when the store goes, and what passes then is booked before the
// next batch.
func TestBatch(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, time.Hour)
		batch := func(n int) (passed int) {
			requests := make([][]window.Charge, n)
			for i := range requests {
				requests[i] = []window.Charge{c}
			}
			for i, r := range s.TakeBatch(t.Context(), requests) {
				if r.Err != nil {
					r.Decisions, r.Err = s.TakeLocal(t.Context(), requests[i], r.Err, false)
				}
				if r.Err != nil {
					t.Error(r.Err)
				} else if window.Allowed(r.Decisions) {
					passed++
				}
			}
			return passed
		}
		if got := batch(4); got != 4 {
			t.Errorf("with the store, %d of 4 pass", got)
		}
		s.remote.become(down)
		if got := batch(3); got != 3 {
			t.Errorf("without it, %d of 3 pass", got)
		}
		s.remote.become(up)
		if got := batch(9); got != 3 || s.remote.booked("zone") != 3 {
			t.Errorf("once it is back, %d more pass, and %d units are booked, want 3 and 3", got, s.remote.booked("zone"))
		}
	})
}

// A guard divides limits by the number of processes that another one has counted.
func TestCrewOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newRemote())
		g := fallback.New(s.remote, fallback.Options{Presence: s.Guard})
		if n := g.Instances(); n != s.Instances() {
			t.Errorf("%d instances, want %d", n, s.Instances())
		}
		s.Join()
		synctest.Wait()
		if n := g.Instances(); n != s.Instances() {
			t.Errorf("%d instances, want %d", n, s.Instances())
		}
		s.Leave()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}
