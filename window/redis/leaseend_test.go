package redis_test

import (
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestLeaseClose closes stores while others take and end leases: what was handed out is
// booked, and nothing else, but for requests whose answer was lost.
func TestLeaseClose(t *testing.T) {
	c := leased(charge("zone", "key", 1_000_000, time.Hour), 4, 5*time.Millisecond)
	for round := range 40 {
		var told reports
		prefix := freshPrefix("close")
		s := redis.New(redis.Options{Addresses: []string{server.Addr}, Prefix: prefix, Timeout: patience, Report: told.add})
		var group sync.WaitGroup
		var allowed, failed atomic.Int64
		for range 8 {
			group.Go(func() {
				for {
					if _, err := s.Take(t.Context(), []window.Charge{c}); err != nil {
						failed.Add(1)
						return // the store is closed
					}
					allowed.Add(1)
				}
			})
		}
		for allowed.Load() < int64(20*round) && failed.Load() == 0 { // at some moment
			runtime.Gosched()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		group.Wait()
		if errs := told.list(); len(errs) > 0 {
			t.Errorf("reported: %v, want nothing", errs)
		}
		least := allowed.Load()
		if got := charged(t, newStore(t, redis.Options{Prefix: prefix}), leased(c, 0, 0)); got < least || got > least+failed.Load() {
			t.Errorf("%d are booked in the end, want %d, and up to %d more", got, least, failed.Load())
		}
	}
}

// TestLeasesClose closes a store with many leases, which go together.
func TestLeasesClose(t *testing.T) {
	const counters = 4_000
	p := startProxy(t)
	p.target.Store(&server.Addr)
	var told reports
	prefix := freshPrefix("many")
	s := redis.New(redis.Options{Addresses: []string{p.addr}, Prefix: prefix, Timeout: patience, Report: told.add})
	next := make(chan string)
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for key := range next {
				c := leased(charge("zone", key, 100, time.Hour), 8, time.Minute)
				for range 2 {
					if _, err := s.Take(t.Context(), []window.Charge{c}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range counters {
		next <- strconv.Itoa(i)
	}
	close(next)
	group.Wait()
	if got := redis.Leases(s).Left(); got != counters {
		t.Fatalf("%d units are leased, want one of each counter", got)
	}
	// Something else in the place of one of them is that one's trouble.
	if err := server.Client(t).Set(t.Context(), prefix+":2-zset:zone:17", "foreign", 0).Err(); err != nil {
		t.Fatal(err)
	}
	before := p.turns.Load()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if errs := told.list(); len(errs) != 1 || !errors.Is(errs[0], window.ErrForeign) {
		t.Errorf("%d reports: %v, want one of the foreign counter", len(errs), errs)
	}
	if turns := p.turns.Load() - before; turns > counters/50 {
		t.Errorf("%d round trips for %d leases", turns, counters)
	}
	look := newStore(t, redis.Options{Prefix: prefix})
	for i := range counters {
		if i == 17 {
			continue
		}
		if got := charged(t, look, charge("zone", strconv.Itoa(i), 100, time.Hour)); got != 2 {
			t.Fatalf("%d units of counter %d are booked, want 2", got, i)
		}
	}
}
