package memory_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// After charges above the limit, RetryAfter is right to the millisecond: the request passes then, and not
// one millisecond before.
func TestRetryAfterOfADebt(t *testing.T) {
	for _, algorithm := range []window.Algorithm{window.Zset{}, window.Log{}, window.Stream{}} {
		now := int64(1_000_000)
		store := memory.New(memory.Options{Now: func() int64 { return now }})
		c := window.Charge{Zone: "tokens", Key: "key", Cost: 1, Algorithm: algorithm, Policies: []window.Policy{{Limit: 1000, Window: 10 * time.Second}}}
		take := func() window.Decision {
			t.Helper()
			ds, err := store.Take(t.Context(), []window.Charge{c})
			if err != nil {
				t.Fatal(err)
			}
			return ds[0]
		}
		settle := func(d window.Decision, delta int64) {
			t.Helper()
			if err := engine.Settle(t.Context(), store, c, d.At, delta); err != nil {
				t.Fatal(err)
			}
		}
		first := take()
		now += 7
		second := take()
		now += 13
		settle(first, 899) // 900 from 1,000,020 on
		now += 30
		settle(second, 4999) // 5,000 from 1,000,050 on: the debt
		d := take()
		// The second charge is above the limit by itself, so that nothing passes before it leaves the window.
		if want := 10 * time.Second; d.Allowed || d.RetryAfter != want {
			t.Errorf("%T: %+v, want denied for %s", algorithm, d, want)
		}
		now += d.RetryAfter.Milliseconds() - 1
		if d := take(); d.Allowed || d.RetryAfter != time.Millisecond {
			t.Errorf("%T: %+v a millisecond before, want denied", algorithm, d)
		}
		now++
		if d := take(); !d.Allowed || d.Remaining != 999 {
			t.Errorf("%T: %+v then, want allowed with 999 left", algorithm, d)
		}
		_ = store.Close()
	}
}
