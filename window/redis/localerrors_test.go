package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// refusing is a store that calls each charge invalid.
type refusing struct{ *memory.Store }

func (refusing) Take(context.Context, []window.Charge) ([]window.Decision, error) {
	return nil, window.ErrInvalid
}

func (r refusing) TakeInto(ctx context.Context, _ []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	return r.Take(ctx, charges)
}

func (r refusing) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	return windowtest.TakeEach(ctx, r.Take, requests)
}

func (refusing) Ping(context.Context) error { return nil }

// Local counts decide in an outage, and on no other error of the store.
func TestLocalOnlyInOutages(t *testing.T) {
	store := refusing{memory.New(memory.Options{})}
	defer func() { _ = store.Close() }()
	guard := fallback.New(store, fallback.Options{})
	defer func() { _ = guard.Close() }()
	guard.EnableLocal()
	l := &local{store, guard}
	charges := []window.Charge{windowtest.Charge("zone", "key", 10, time.Minute)}
	if ds, err := l.Take(t.Context(), charges); !errors.Is(err, window.ErrInvalid) {
		t.Errorf("Take = %+v, %v, want ErrInvalid", ds, err)
	}
	if r := l.TakeBatch(t.Context(), [][]window.Charge{charges})[0]; !errors.Is(r.Err, window.ErrInvalid) {
		t.Errorf("TakeBatch = %+v, want ErrInvalid", r)
	}
}
