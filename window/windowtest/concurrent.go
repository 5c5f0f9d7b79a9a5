package windowtest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Concurrent asks stores that share their counters from many goroutines, for a
// few seconds of real time: no window holds more than the algorithm promises, and
// nearly all that fits is admitted.
func Concurrent(t *testing.T, algo window.Algorithm, stores ...window.Store) {
	const (
		limit   = 50
		length  = 2 * time.Second
		during  = 6500 * time.Millisecond
		callers = 16
	)
	possible, bound := limit*(1+int(during/length)), limit
	if a, ok := algo.(window.GCRA); ok {
		p := window.Policy{Limit: limit, Window: length}
		possible, bound = int(a.AtOnce(p))+limit*int(during/length), gcraBound(a, p)
	}
	charges := []window.Charge{{
		Zone: "zone", Key: "key", Cost: 1, Algorithm: algo,
		Policies: []window.Policy{{Limit: limit, Window: length}},
	}}
	var (
		mu       sync.Mutex
		admitted []int64
		calls    int
		group    sync.WaitGroup
	)
	end := time.Now().Add(during)
	for i := range callers {
		store := stores[i%len(stores)]
		group.Go(func() {
			var own []int64
			n := 0
			for ; time.Now().Before(end); n++ {
				ds, err := store.Take(t.Context(), charges)
				if err != nil {
					t.Errorf("Take: %v", err)
					return
				}
				if ds[0].Allowed {
					own = append(own, ds[0].At)
				} else { // a denial out of memory takes no time, and others wait for a server
					time.Sleep(100 * time.Microsecond)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			admitted = append(admitted, own...)
			calls += n
		})
	}
	group.Wait()
	slices.Sort(admitted)
	most := 0
	for first, last := 0, 0; last < len(admitted); last++ {
		for admitted[last]-admitted[first] >= length.Milliseconds() {
			first++
		}
		most = max(most, last-first+1)
	}
	t.Logf("%d of %d possible admitted in %d calls, at most %d in a window", len(admitted), possible, calls, most)
	if most > bound {
		t.Errorf("%d admitted in one window, want %d at most", most, bound)
	}
	if len(admitted)*100 < possible*95 {
		t.Errorf("%d admitted, want 95%% of %d at least", len(admitted), possible)
	}
}
