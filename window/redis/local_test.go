package redis_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestLimiterLocal limits while the server is away, and books that once it is back.
func TestLimiterLocal(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{server.Addr}})
	l, err := window.NewLimiter(s, "mails", window.Log{}, window.Policy{Limit: 3, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	l.OnError = window.Local
	allow := func(want bool, remaining int64) {
		t.Helper()
		if d, err := l.Allow(t.Context(), "anna"); err != nil || d.Allowed != want || d.Remaining != remaining {
			t.Fatalf("Allow = %+v, %v; want %v, %d", d, err, want, remaining)
		}
	}
	warm(t, s, "key")
	allow(true, 2)
	server.Kill()
	allow(true, 1)
	allow(true, 0)
	allow(false, 0)
	if d, err := l.Peek(t.Context(), "anna"); err != nil || d.Allowed {
		t.Errorf("Peek = %+v, %v; want a denial", d, err)
	}
	server.Restart(t)
	eventually(t, patience, "the units of the outage are booked", func() bool {
		ds, err := s.Peek(t.Context(), []window.Charge{l.Zone.Charge("anna", 1)})
		return err == nil && ds[0].Remaining == 1 // what the server had is gone with it
	})
	allow(true, 0)
	allow(false, 0)
}
