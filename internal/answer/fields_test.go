package answer

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestSeconds(t *testing.T) {
	for _, c := range []struct {
		in   time.Duration
		want int64
	}{
		{0, 0},
		{1, 1},
		{time.Millisecond, 1},
		{999 * time.Millisecond, 1},
		{time.Second, 1},
		{1001 * time.Millisecond, 2},
		{time.Hour, 3600},
		{window.Never, 9_223_372_037},
	} {
		if got := Seconds(c.in); got != c.want {
			t.Errorf("seconds(%s): got %d, want %d", c.in, got, c.want)
		}
	}
}

// What is announced passes in the seconds announced, and no more.
func TestAnnouncedIsTrue(t *testing.T) {
	for _, c := range []struct {
		window         time.Duration
		quota, seconds int64 // of a limit of 2
	}{
		{time.Millisecond, 2000, 1},
		{100 * time.Millisecond, 20, 1},
		{300 * time.Millisecond, 20, 3},
		{999 * time.Millisecond, 2000, 999},
		{time.Second, 2, 1},
		{1001 * time.Millisecond, 2000, 1001},
		{1500 * time.Millisecond, 4, 3},
		{90 * time.Second, 2, 90},
		{61500 * time.Millisecond, 4, 123},
		{106751 * 24 * time.Hour, 2, 106751 * 86400},
	} {
		p := window.Policy{Limit: 2, Window: c.window}
		quota, length := Announced(p)
		if quota != c.quota || length != c.seconds {
			t.Errorf("2 in %s: got %d in %d s, want %d in %d s", c.window, quota, length, c.quota, c.seconds)
		}
		// The quota is what whole windows of these seconds let pass.
		if whole := time.Duration(length) * time.Second; c.window < time.Hour && (whole%c.window != 0 || int64(whole/c.window)*p.Limit != quota) {
			t.Errorf("2 in %s: %d in %d s is not the same limit", c.window, quota, length)
		}
	}
	if quota, length := Announced(window.Policy{Limit: 1 << 53, Window: time.Millisecond}); quota != MaxSFInteger || length != 1 {
		t.Errorf("2^53 in 1ms: got %d in %d s", quota, length)
	}
}
