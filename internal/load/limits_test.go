package load

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestScale(t *testing.T) {
	for _, c := range []struct {
		limit  int64
		window time.Duration
		factor float64
		want   int64
	}{
		{0, time.Second, 0.3, 0},
		{0, time.Second, 1.2, 0},
		{1, time.Second, 0.3, 1},
		{3, time.Second, 0.01, 1},
		{5, time.Second, 0.5, 3},
		{100, time.Second, 1, 100},
		{100, time.Second, 1.2, 120},
		{100, time.Minute, 0.3, 30},
		{100, time.Minute + time.Millisecond, 0.3, 100},
		{window.MaxProduct / 1000, time.Second, 10, window.MaxProduct / 1000},
		{window.MaxProduct, time.Millisecond, 0.5, window.MaxProduct / 2},
	} {
		if got := Scale(window.Policy{Limit: c.limit, Window: c.window}, c.factor); got.Limit != c.want || got.Check() != nil {
			t.Errorf("%d in %s at %v: %d, want %d", c.limit, c.window, c.factor, got.Limit, c.want)
		}
	}
}
