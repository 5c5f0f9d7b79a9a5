package memory

import (
	"testing"
	"time"
)

// TestSmallHistories holds how many requests fit into a slot, by how far they are apart.
func TestSmallHistories(t *testing.T) {
	for _, c := range []struct {
		gap  time.Duration
		want int
	}{{63 * time.Millisecond, 48}, {8 * time.Second, 24}, {17 * time.Minute, 16}} {
		s, now := newStore(t, 10)
		fit := 0
		for small := true; small; {
			now.Add(c.gap.Milliseconds())
			take(t, s, charge("zone", "key", 1_000, 24*time.Hour))
			for k := range s.shards {
				small = small && len(s.shards[k].larges) == 0
			}
			fit++
		}
		if fit--; fit != c.want {
			t.Errorf("%d requests fit, %s apart; want %d", fit, c.gap, c.want)
		}
	}
}

// TestHistoryGivesRoomBack makes a busy key come to rest: what it took is given back
// while units leave the window, and the rest goes back into the slot.
func TestHistoryGivesRoomBack(t *testing.T) {
	s, now := newStore(t, 10)
	c := charge("zone", "key", 100_000, time.Minute)
	room := func() int {
		for k := range s.shards {
			if larges := s.shards[k].larges; len(larges) > 0 {
				return cap(larges[0].history)
			}
		}
		return 0
	}
	most := 0
	for range 50_000 {
		now.Add(2)
		take(t, s, c)
		most = max(most, room())
	}
	if most < 30_000 || most > 200_000 {
		t.Fatalf("30000 units take %d bytes, want 1 to 6 each", most)
	}
	now.Add(59_000)
	take(t, s, c)
	if n := room(); n == 0 || n > most/8 {
		t.Errorf("%d bytes for the units of a second, want less than an eighth of %d for those of a minute", n, most)
	}
	now.Add(59_000)
	take(t, s, c)
	if n := room(); n != 0 {
		t.Errorf("%d bytes beside the slot for two units", n)
	}
}
