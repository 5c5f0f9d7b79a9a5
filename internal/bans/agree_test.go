package bans_test

import (
	"maps"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/banstest"
)

// TestAgree compares every field of what a Table and a Model answer to random writes, and of what they keep.
func TestAgree(t *testing.T) {
	for w := range banstest.Walks(t) {
		now := func() int64 { return w.Now }
		table, model := bans.NewTable(now), banstest.NewModel(w.Most, now)
		table.Most(w.Most)
		for ask := range w.Calls() {
			want, _ := model.ExchangeBans(t.Context(), ask)
			got, _ := table.ExchangeBans(t.Context(), ask)
			if banstest.Text(got) != banstest.Text(want) || !maps.Equal(table.Texts(), banstest.Texts(model)) {
				t.Fatalf("seed %d: %+v\ngot  %s\n%v\nwant %s\n%v", w.Seed, ask, banstest.Text(got), table.Texts(), banstest.Text(want), banstest.Texts(model))
			}
			w.Hear(want)
		}
	}
}
