package totals

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

var (
	seed      = flag.Uint64("totals.seed", 1, "seed of the random schedules; 0 takes one at random, and prints it")
	schedules = flag.Int("totals.schedules", 2_000, "how many random schedules run; make test-long runs 100,000")
	only      = flag.Int("totals.only", -1, "the number of one schedule to run, and to print step by step")
)

// TestSchedules runs processes, a network that loses, doubles, delays and reorders messages, and the model of the
// server, in virtual time. See world for what holds after each step, and world.heal for what holds once faults have
// stopped.
func TestSchedules(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
		println("-totals.seed", *seed)
	}
	if *only >= 0 {
		newWorld(t, *seed, *only).run()
		return
	}
	var mu sync.Mutex
	var all tally
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := range next {
				w := newWorld(t, *seed, n)
				w.run()
				mu.Lock()
				all.add(&w.tally)
				mu.Unlock()
			}
		})
	}
	for n := 0; n < *schedules && !t.Failed(); n++ {
		next <- n
	}
	close(next)
	workers.Wait()
	t.Logf("%d schedules: %+v", *schedules, all)
	if all.Passed == 0 || all.Denied == 0 || all.Unknown == 0 || all.Over == 0 || all.Refused == 0 || all.Stale == 0 || all.Lost == 0 || all.Reclaimed == 0 {
		t.Error("something never happened")
	}
}

// tally counts what has happened.
type tally struct {
	Steps, Passed, Denied, Unknown, Added, Freed, Totals int
	Refused                                              int // takes that were given up
	Stale, Lost                                          int // totals
	Reclaimed                                            int
	Over                                                 int // steps after which more was held than the limit
}

func (a *tally) add(b *tally) {
	a.Steps += b.Steps
	a.Passed += b.Passed
	a.Denied += b.Denied
	a.Unknown += b.Unknown
	a.Added += b.Added
	a.Freed += b.Freed
	a.Totals += b.Totals
	a.Refused += b.Refused
	a.Stale += b.Stale
	a.Lost += b.Lost
	a.Reclaimed += b.Reclaimed
	a.Over += b.Over
}
