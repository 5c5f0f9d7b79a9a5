package fallback_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Reset fails as Take does, and counts.
func (r *remote) Reset(ctx context.Context, c window.Charge) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets++
	err, idle := r.fault()
	if idle {
		return err
	}
	_ = r.Store.Reset(ctx, c)
	return err
}

// Peek fails as Take does.
func (r *remote) Peek(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err, _ := r.fault(); err != nil {
		return nil, err
	}
	return r.Store.Peek(ctx, charges)
}

// foresee returns what a site says of the next request on a charge.
func (s *site) foresee(t *testing.T, c window.Charge) (window.Decision, engine.Source) {
	t.Helper()
	ds, by, _, err := s.Guard.Peek(t.Context(), []window.Charge{c}, true, s.share)
	if err != nil {
		t.Fatal(err)
	}
	return ds[0], by
}

// Peek says what the next request meets, with the store and without it, and does not change it.
func TestPeekIsTheNextRequest(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *site, c window.Charge) {
		check := func(what string, source engine.Source, n int) {
			t.Helper()
			for range n {
				d, by := s.foresee(t, c)
				if again, _ := s.foresee(t, c); again != d {
					t.Fatalf("%s: the second Peek = %+v, the first %+v", what, again, d)
				}
				ds, _ := s.decide(t, c)
				want := ds[0]
				if want.Allowed {
					want.Remaining += c.Cost
				}
				if d.Allowed != want.Allowed || d.Remaining != want.Remaining || d.RetryAfter != want.RetryAfter || by != source {
					t.Fatalf("%s: Peek = %+v by %q, and the request %+v", what, d, by, ds[0])
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		check("with the store", engine.SourceStore, 4)
		s.away(t)
		synctest.Wait()
		check("without it", engine.SourceLocal, 12)
		s.back()
		check("when it is back", engine.SourceStore, 12)
	})
}

// A Peek while the store is away does not begin to count what the store was known to have: those
// units count from the first decision.
func TestPeekKeepsWhatIsKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, 10*time.Second)
		s.passed(t, 6, c)
		s.away(t)
		time.Sleep(4 * time.Second)
		if d, _ := s.foresee(t, c); d.Remaining != 4 {
			t.Errorf("Peek: %d remaining, want 4", d.Remaining)
		}
		if s.Known(0, c) != 6 {
			t.Errorf("after a Peek %d are known to be used, want 6", s.Known(0, c))
		}
	})
}

// A reset lets the whole limit pass at once, while the store is away and when it is back: it
// forgets there before anything is booked, and nothing that was owed before comes back.
func TestResetWhileAway(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *site, c window.Charge) {
		c.Policies = []window.Policy{{Limit: 10, Window: 20 * time.Second}}
		s.passed(t, 6, c)
		s.away(t)
		s.want(t, "without the store", 4, c)
		done, err := s.Guard.Reset(t.Context(), c)
		if err != nil || done {
			t.Fatalf("Reset = %v, %v, want that it is done later", done, err)
		}
		if d, _ := s.foresee(t, c); !d.Allowed || d.Remaining != 10 {
			t.Errorf("after the reset: Peek = %+v, want 10 remaining", d)
		}
		if got := s.passed(t, 3, c); got != 3 {
			t.Errorf("%d of 3 pass after the reset", got)
		}
		s.back()
		s.want(t, "when it is back", 7, c)
		if got := s.remote.booked("zone"); got != 3 {
			t.Errorf("%d units were booked, want 3", got)
		}
	})
}

// A reset that no request asks the counter for afterwards reaches the store in the background.
func TestResetInTheBackground(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, time.Hour)
		s.want(t, "with the store", 10, c)
		s.remote.become(lost) // whether it is done is unknown: it is repeated
		if done, err := s.Guard.Reset(t.Context(), c); done || err != nil {
			t.Fatalf("Reset = %v, %v, want that it is done later", done, err)
		}
		s.back()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if d, _ := s.remote.Peek(t.Context(), []window.Charge{c}); d[0].Remaining != 10 || s.remote.resets != 2 {
			t.Errorf("the store has %+v after %d resets, want 10 remaining after 2", d[0], s.remote.resets)
		}
		s.want(t, "then", 10, c)
	})
}

// A reset is done at once where the store answers, also for units that are owed.
func TestReset(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *site, c window.Charge) {
		s.passed(t, 5, c)
		s.remote.become(busy)
		s.passed(t, 5, c)
		s.remote.become(up)
		if done, err := s.Guard.Reset(t.Context(), c); !done || err != nil {
			t.Fatalf("Reset = %v, %v, want that it is done", done, err)
		}
		s.want(t, "after the reset", 10, c)
		if got := s.remote.booked("zone"); got != 0 {
			t.Errorf("%d units were booked, want none", got)
		}
	})
}

// Resets that cannot be kept are refused.
func TestResetsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.BoundDebtors(0)
		s.away(t)
		if done, err := s.Guard.Reset(t.Context(), charge("zone", "key", 10, time.Hour)); done || err == nil {
			t.Errorf("Reset = %v, %v, want an error", done, err)
		}
	})
}

// Two guards of the same counts know of each other's resets.
func TestResetOutlivesAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, r := fallback.NewCounts(), newRemote()
		c := charge("zone", "key", 10, time.Hour)
		old := &site{Guard: fallback.New(r, fallback.Options{Counts: counts}), remote: r}
		old.EnableLocal()
		old.want(t, "with the store", 10, c)
		old.away(t)
		if _, err := old.Guard.Reset(t.Context(), c); err != nil {
			t.Error(err)
		}
		young := &site{Guard: fallback.New(r, fallback.Options{Counts: counts}), remote: r}
		young.EnableLocal()
		_ = old.Close()
		young.back()
		young.want(t, "after a reload", 10, c)
		_, _, _ = young.Close(), counts.Close(), r.Close()
	})
}
