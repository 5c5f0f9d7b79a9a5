package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// take decides on a key. A denial is no error.
type take func(ctx context.Context, key string) error

// limiter is something that decides on keys.
type limiter struct {
	name string
	// caller returns a take for one goroutine, which it may keep memory for.
	caller func() take
}

// names returns n keys: numbers of seven digits.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = keyName(i)
	}
	return all
}

func keyName(i int) string { return fmt.Sprintf("%07d", i) }

// during has callers take keys at random for a while, and returns how many
// decisions there were in how many seconds.
func during(length time.Duration, callers int, keys []string, l limiter) (decisions int64, seconds float64, err error) {
	var stop atomic.Bool
	timer := time.AfterFunc(length, func() { stop.Store(true) })
	defer timer.Stop()
	return drive(callers, l, func(caller int) func() (string, bool) {
		random := seeded(caller)
		return func() (string, bool) { return keys[random.IntN(len(keys))], !stop.Load() }
	})
}

// times has callers take keys at random, so many times in all.
func times(calls, callers int, keys []string, l limiter) (decisions int64, seconds float64, err error) {
	return drive(callers, l, func(caller int) func() (string, bool) {
		random, left := seeded(caller), calls/callers
		return func() (string, bool) { left--; return keys[random.IntN(len(keys))], left >= 0 }
	})
}

// drive has callers take the keys that next gives them, until it gives no more.
func drive(callers int, l limiter, next func(caller int) func() (string, bool)) (decisions int64, seconds float64, err error) {
	ctx := context.Background()
	counts := make([]int64, callers)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range callers {
		wg.Go(func() {
			take, next := l.caller(), next(i)
			n := int64(0)
			for key, more := next(); more; key, more = next() {
				if errs[i] = take(ctx, key); errs[i] != nil {
					return
				}
				n++
			}
			counts[i] = n
		})
	}
	wg.Wait()
	seconds = time.Since(began).Seconds()
	for _, n := range counts {
		decisions += n
	}
	for _, err := range errs {
		if err != nil { // the others will say the same
			return decisions, seconds, err
		}
	}
	return decisions, seconds, nil
}

func seeded(caller int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(caller), uint64(time.Now().UnixNano()))) //nolint:gosec // keys need not be secret
}

// ownCPU returns the processor time that this process has used, in µs.
func ownCPU() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // does not fail for oneself
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e3
}
