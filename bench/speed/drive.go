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

// take decides on a key, and reports whether it let the call pass.
type take func(ctx context.Context, key string) (bool, error)

// limiter is something that decides on keys.
type limiter struct {
	name string
	// caller returns a take for one goroutine, which it may keep memory for.
	caller func() take
}

// keyName returns the name of a key: a number of seven digits. It is made each time,
// as a request brings one along: out of a list, it would first have to be fetched from
// memory, and that would be measured, too.
func keyName(i int) string {
	var name [7]byte
	for k := len(name) - 1; k >= 0; k-- {
		name[k] = byte('0' + i%10)
		i /= 10
	}
	return string(name[:])
}

// tally is what callers did.
type tally struct {
	decisions, denied int64
	seconds           float64
}

// perSecond returns decisions per second.
func (t tally) perSecond() float64 { return float64(t.decisions) / t.seconds }

// during makes callers take one of `keys` keys at random for a length of time. A denial is an
// error: denying is other work, and faster.
func during(length time.Duration, callers, keys int, l limiter) (tally, error) {
	var stop atomic.Bool
	timer := time.AfterFunc(length, func() { stop.Store(true) })
	defer timer.Stop()
	t, err := drive(callers, l, func(caller int) func() (string, bool) {
		random := seeded(caller)
		return func() (string, bool) { return keyName(random.IntN(keys)), !stop.Load() }
	})
	if err == nil && t.denied > 0 {
		err = fmt.Errorf("%d of %d calls were denied; the limit is too low for this machine", t.denied, t.decisions)
	}
	return t, err
}

// times makes callers take one of `keys` keys at random, `calls` times in all.
func times(calls, callers, keys int, l limiter) (tally, error) {
	return drive(callers, l, func(caller int) func() (string, bool) {
		random, left := seeded(caller), calls/callers
		return func() (string, bool) { left--; return keyName(random.IntN(keys)), left >= 0 }
	})
}

// once makes callers take each key once.
func once(callers, keys int, l limiter) error {
	_, err := drive(callers, l, func(caller int) func() (string, bool) {
		at := caller - callers
		return func() (string, bool) {
			at += callers
			return keyName(at), at < keys
		}
	})
	return err
}

// drive makes callers take the keys that next gives them, until it gives no more.
func drive(callers int, l limiter, next func(caller int) func() (string, bool)) (tally, error) {
	ctx := context.Background()
	all := make([]tally, callers)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range callers {
		wg.Go(func() {
			take, next := l.caller(), next(i)
			var own tally // apart from those of the others, so that no two share a cache line
			for key, more := next(); more; key, more = next() {
				allowed, err := take(ctx, key)
				if err != nil {
					errs[i] = err
					return
				}
				own.decisions++
				if !allowed {
					own.denied++
				}
			}
			all[i] = own
		})
	}
	wg.Wait()
	sum := tally{seconds: time.Since(began).Seconds()}
	for i, own := range all {
		if errs[i] != nil { // the others will say the same
			return sum, errs[i]
		}
		sum.decisions += own.decisions
		sum.denied += own.denied
	}
	return sum, nil
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
