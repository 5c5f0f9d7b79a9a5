package windowtest

import (
	"slices"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// testRoom takes with room for the decisions: they are there, they are those that come
// without, and they stay.
func testRoom(t *testing.T, open Open) {
	each(t, open, func(f *fixture) {
		policies := []window.Policy{per(3, 10_000), per(4, 60_000)}
		room := make([]window.Decision, 3)
		take := func(zone string, cost int64) []window.Decision {
			ds, err := engine.TakeInto(f.Context(), f.store, room, []window.Charge{f.charge(zone, "key", cost, policies...)})
			if err != nil {
				f.Fatal(err)
			}
			return ds
		}
		for step, cost := range []int64{1, 2, 1, 1, 0, 5} {
			f.clock.Add(1_000)
			want := f.take(f.charge("without", "key", cost, policies...))
			for i := range room {
				room[i] = window.Decision{Allowed: true, Limit: -1, Remaining: -1, RetryAfter: -1, ResetAfter: -1, EffectiveWindow: -1, At: -1}
			}
			got := take("with", cost)
			if !slices.Equal(got, want) {
				f.Fatalf("step %d: got %+v, want %+v", step, got, want)
			}
			if &got[0] != &room[0] {
				f.Fatalf("step %d: the decisions are not where there is room", step)
			}
			f.take(f.charge("another", "key", cost, policies...))
			if !slices.Equal(got, want) {
				f.Fatalf("step %d: after another request the decisions are %+v, were %+v", step, got, want)
			}
		}
		room = make([]window.Decision, 1)
		if got := take("with", 0); len(got) != 2 || &got[0] == &room[0] {
			f.Errorf("two decisions with room for one are %+v", got)
		}
		if _, err := engine.TakeInto(f.Context(), f.store, room, []window.Charge{f.charge("with", "key", -1)}); err == nil {
			f.Error("no error for a negative cost")
		}
	})
}
