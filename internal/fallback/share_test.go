package fallback_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// crewed is a remote that says how many processes there are.
type crewed struct {
	*remote
	peers            atomic.Int64 // below 0: an error
	attended, parted atomic.Int64
}

func (c *crewed) Register(context.Context) (int64, error) {
	c.attended.Add(1)
	if n := c.peers.Load(); n >= 0 {
		return n, nil
	}
	return 0, errors.New("away")
}

func (c *crewed) Leave(context.Context) error {
	c.parted.Add(1)
	return nil
}

// A process registers every 5 s while it shares, and what was last seen is kept.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &crewed{remote: newRemote()}
		r.peers.Store(3)
		g := fallback.New(r, fallback.Options{})
		want := func(what string, attended, parted, instances int64) {
			t.Helper()
			synctest.Wait()
			if a, p, n := r.attended.Load(), r.parted.Load(), g.Instances(); a != attended || p != parted || n != instances {
				t.Errorf("%s: attended %d times, left %d, %d instances; want %d, %d, %d", what, a, p, n, attended, parted, instances)
			}
		}
		time.Sleep(time.Minute)
		want("before any process shares", 0, 0, 1)
		g.Join()
		want("at once", 1, 0, 3)
		time.Sleep(12 * time.Second)
		want("after 12 s", 3, 0, 3)
		r.peers.Store(-1)
		time.Sleep(5 * time.Second)
		want("while the store is away", 4, 0, 3)
		r.peers.Store(2)
		time.Sleep(5 * time.Second)
		want("when it is back", 5, 0, 2)
		g.Join() // as a reload does
		g.Leave()
		want("after a reload", 5, 0, 2)
		g.Leave()
		want("when no process shares any more", 5, 1, 2)
		time.Sleep(time.Minute)
		want("and then", 5, 1, 2)
		g.Join()
		want("again", 6, 1, 2)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		want("closed", 6, 2, 2)
		_ = r.Close()
	})
}

// A guard that takes over while the store is away knows how many were seen before.
func TestInstancesWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, r := fallback.NewCounts(), &crewed{remote: newRemote()}
		r.peers.Store(3)
		old := fallback.New(r, fallback.Options{Counts: counts})
		old.Join()
		synctest.Wait()
		r.peers.Store(-1)
		young := fallback.New(r, fallback.Options{Counts: counts})
		young.Join()
		synctest.Wait()
		if n := young.Instances(); n != 3 {
			t.Errorf("%d instances, want 3", n)
		}
		if err := errors.Join(old.Close(), young.Close(), counts.Close(), r.Close()); err != nil {
			t.Error(err)
		}
	})
}

// Limits are divided, and so is what the store had counted.
func TestDivided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &crewed{remote: newRemote()}
		r.peers.Store(3)
		s := &site{Guard: fallback.New(r, fallback.Options{}), remote: r.remote, share: true}
		s.EnableLocal()
		s.Join()
		defer s.close(t)
		synctest.Wait()
		used := charge("used", "key", 100, time.Hour)
		if got := s.passed(t, 40, used); got != 40 {
			t.Fatalf("%d of 40 pass", got)
		}
		up := charge("up", "key", 100, time.Hour)
		s.want(t, "with the store", 100, up)
		s.remote.become(down)
		s.want(t, "a third of 100, less a third of 40", 33-14, used)
		s.want(t, "of what is used up", 0, up)
		for limit, want := range map[int64]int64{0: 0, 1: 1, 2: 1, 3: 1, 5: 1, 6: 2, 100: 33} {
			c := charge("fresh", "key", limit, time.Hour)
			c.Key += string(rune('a' + limit))
			s.want(t, "a third of the limit", want, c)
		}
		bucket := charge("bucket", "key", 30, time.Hour)
		bucket.Algorithm = window.GCRA{Burst: 9}
		s.want(t, "a third of the burst", 3, bucket)
	})
}

// Three instances on one Redis count each other, and when it goes away the limit holds
// for all of them together.
func TestShare(t *testing.T) {
	defer fallback.Heartbeat(20 * time.Millisecond)()
	server := redistest.Start(t)
	const limit = 100
	var sites [3]*site
	for i := range sites {
		store := redis.New(redis.Options{Addresses: []string{server.Addr}, Timeout: time.Second}).Engine().(fallback.Store)
		sites[i] = &site{Guard: fallback.New(store, fallback.Options{}), share: true}
		sites[i].EnableLocal()
		sites[i].Join()
		t.Cleanup(func() {
			_ = sites[i].Close()
			_ = store.Close()
		})
	}
	counted := func(n int64, who ...*site) {
		t.Helper()
		for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			all := true
			for _, s := range who {
				all = all && s.Instances() == n
			}
			if all {
				return
			}
			if time.Since(start) > 10*time.Second {
				t.Fatalf("never: %d instances", n)
			}
		}
	}
	counted(3, sites[:]...)
	sites[2].Leave()
	counted(2, sites[:2]...)
	sites[2].Join()
	counted(3, sites[:]...)

	known, fresh := charge("known", "key", limit, time.Hour), charge("fresh", "key", limit, time.Hour)
	for _, s := range sites {
		if got := s.passed(t, 10, known); got != 10 {
			t.Fatalf("%d of 10 pass with Redis", got)
		}
	}
	server.Kill()
	var passed [2]atomic.Int64
	var group sync.WaitGroup
	for _, s := range sites {
		group.Go(func() {
			passed[0].Add(s.passed(t, limit, known))
			passed[1].Add(s.passed(t, limit, fresh))
		})
	}
	group.Wait()
	counted(3, sites[:]...)
	// 33 each, less 4, 7 or 10: a third of the 10, 20 or 30 that it knows of.
	if got := passed[0].Load(); got != 33-4+33-7+33-10 {
		t.Errorf("of a key of which 30 are used, %d pass, want 78", got)
	}
	if got := passed[1].Load(); got != 99 {
		t.Errorf("of a fresh key %d pass, want 99", got)
	}
}
