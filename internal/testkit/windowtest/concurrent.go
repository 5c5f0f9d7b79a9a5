package windowtest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Concurrent asks stores that share their counters from many goroutines, for a
// few seconds of real time. Played back alone, in the order of the store's clock,
// every decision has to come out the same: what was admitted fits, and what was
// denied does not. And no window holds more than the algorithm promises.
func Concurrent(t *testing.T, algo window.Algorithm, stores ...window.Store) {
	const (
		limit   = 50
		length  = 2 * time.Second
		during  = 6500 * time.Millisecond
		callers = 16
	)
	policy := window.Policy{Limit: limit, Window: length}
	bound := limit
	if a, ok := algo.(window.GCRA); ok {
		bound = gcraBound(a, policy)
	}
	charges := []window.Charge{{
		Zone: "zone", Key: "key", Cost: 1, Algorithm: algo,
		Policies: []window.Policy{policy},
	}}
	var (
		mu               sync.Mutex
		admitted, denied []int64
		group            sync.WaitGroup
	)
	end := time.Now().Add(during)
	for i := range callers {
		store := stores[i%len(stores)]
		group.Go(func() {
			var own [2][]int64
			room := make([]window.Decision, 1)
			for time.Now().Before(end) {
				ds, err := engine.TakeInto(t.Context(), store, room, charges)
				if err != nil {
					t.Errorf("Take: %v", err)
					return
				}
				if ds[0].Allowed {
					own[0] = append(own[0], ds[0].At)
				} else {
					own[1] = append(own[1], ds[0].At)
					// A denial out of memory takes no time, and others wait for a server.
					time.Sleep(100 * time.Microsecond)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			admitted = append(admitted, own[0]...)
			denied = append(denied, own[1]...)
		})
	}
	group.Wait()
	slices.Sort(admitted)
	slices.Sort(denied)
	most := 0
	for first, last := 0, 0; last < len(admitted); last++ {
		for admitted[last]-admitted[first] >= length.Milliseconds() {
			first++
		}
		most = max(most, last-first+1)
	}
	t.Logf("%d admitted and %d denied, at most %d in a window", len(admitted), len(denied), most)
	if most > bound {
		t.Errorf("%d admitted in one window, want %d at most", most, bound)
	}
	if len(admitted) < limit || len(denied) == 0 {
		t.Error("too few calls to tell anything")
	}
	replay(t, charges[0], admitted, denied)
}

// replay decides once more, one after the other. Within a millisecond, admitted calls are replayed before denied ones.
func replay(t *testing.T, c window.Charge, admitted, denied []int64) {
	kept := Kept{Algorithm: c.Algorithm}
	for _, at := range denied {
		for ; len(admitted) > 0 && admitted[0] <= at; admitted = admitted[1:] {
			if !window.Allowed(kept.Decide(admitted[0], c, true)) {
				t.Errorf("admitted at %d, above the limit", admitted[0])
			}
		}
		if ds := kept.Decide(at, c, false); window.Allowed(ds) {
			t.Errorf("denied at %d, with %d left", at, ds[0].Remaining)
		}
	}
}
