package recent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/recent"
)

var began = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

// at returns a time some seconds after began.
func at(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }

// Rates are those between two samples, whatever the jitter of who takes them.
func TestHistory(t *testing.T) {
	var h recent.History
	if h.Shown() != nil || !h.Due(at(0)) {
		t.Error("an empty history shows something, or wants nothing")
	}
	h.Note(at(0), recent.Counts{Decisions: 1000, Denied: 500})
	if h.Shown() != nil || h.Due(at(1)) || !h.Due(at(1.9)) {
		t.Error("what was counted before is shown, or the next sample is due at the wrong time")
	}
	h.Note(at(2), recent.Counts{Decisions: 1020, Denied: 505})
	h.Note(at(4.5), recent.Counts{Decisions: 1045, Denied: 505})
	got := h.Shown()
	if got.Until != "2026-01-02T03:04:04.500Z" || got.Step != 2 || got.Samples != 2 ||
		!slices.Equal(got.Decisions, []float64{10, 10}) || !slices.Equal(got.Denied, []float64{2.5, 0}) || got.WouldDeny != nil {
		t.Errorf("got %+v", got)
	}
}

// Only the last samples are kept, and none from before a gap.
func TestBounds(t *testing.T) {
	var h recent.History
	for i := range 3 * recent.Samples {
		h.Note(at(float64(2*i)), recent.Counts{Decisions: int64(i * i), WouldDeny: int64(i)})
	}
	got := h.Shown()
	if n := int64(3*recent.Samples - 1); got.Samples != recent.Samples || len(got.Decisions) != recent.Samples || len(got.WouldDeny) != recent.Samples ||
		got.Decisions[recent.Samples-1] != float64(2*n-1)/2 || got.Decisions[0] != float64(2*(n-recent.Samples+1)-1)/2 {
		t.Errorf("got %+v", got)
	}
	h.Note(at(10_000), recent.Counts{Decisions: 1e9, WouldDeny: 1e9})
	if got := h.Shown(); got != nil {
		t.Errorf("after a gap: %+v", got)
	}
}
