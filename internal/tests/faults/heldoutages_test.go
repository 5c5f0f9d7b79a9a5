package faults_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// census counts the units of a counter that all processes hold, as those know that hold them.
type census struct {
	limit int64

	mu         sync.Mutex // guards what follows
	open, most int64
	admitted   int
	over       []time.Time // when a unit above the limit was admitted
}

func (c *census) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.admitted++
	if c.most = max(c.most, c.open); c.open > c.limit {
		c.over = append(c.over, time.Now())
	}
}

func (c *census) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

func (c *census) now() (open int64, admitted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.admitted
}

// sharer is what a process decides with: a store, and what protects requests from its absence.
type sharer struct {
	store *redis.Store
	guard *fallback.Guard
}

func newSharer(t *testing.T, o redis.Options) *sharer {
	o.Timeout = 300 * time.Millisecond
	s := &sharer{store: redis.New(o)}
	s.guard = fallback.New(s.store.Engine().(fallback.Store), fallback.Options{})
	t.Cleanup(func() {
		_ = s.guard.Close()
		_ = s.store.Close()
	})
	return s
}

// press has requests take a unit each as soon as they can, and hold it for a moment, until the function that it returns has run.
func press(t *testing.T, c *census, charge window.Charge, sharers ...*sharer) (end func()) {
	stop := make(chan struct{})
	var group sync.WaitGroup
	for _, s := range sharers {
		for range c.limit {
			group.Go(func() {
				for {
					pause := 5 * time.Millisecond
					ds, err := s.guard.Take(t.Context(), []window.Charge{charge})
					passes := err == nil && window.Allowed(ds)
					if passes {
						c.enter()
						pause = time.Duration(100+rand.IntN(900)) * time.Millisecond
					}
					over := false
					select {
					case <-stop:
						over = true
					case <-time.After(pause):
					}
					if passes {
						c.leave()
						s.guard.Free(charge)
					}
					if over {
						return
					}
				}
			})
		}
	}
	end = sync.OnceFunc(func() {
		close(stop)
		group.Wait()
	})
	t.Cleanup(end)
	return end
}

// healed is how soon after the server answers again no unit above the limit is admitted.
const healed = time.Second

// TestHeldThroughOutages has two processes hold all that they may when Redis loses their totals, or takes them for dead. What
// they admit above the limit is at most what they held then, and nothing more from a second on after Redis answers again.
func TestHeldThroughOutages(t *testing.T) {
	const limit = 10
	for name, fail := range map[string]func(t *testing.T, s *redistest.Server){
		"flushed": func(t *testing.T, s *redistest.Server) {
			if err := s.Client(t).FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(t *testing.T, s *redistest.Server) {
			if err := s.Client(t).Del(t.Context(), "sw:2-concurrent:held:k").Err(); err != nil {
				t.Fatal(err)
			}
		},
		"killed, and empty": func(t *testing.T, s *redistest.Server) {
			s.Restart(t)
		},
		"killed, with an older snapshot": func(t *testing.T, s *redistest.Server) {
			if err := s.Client(t).Save(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lease / 2)
			s.Restart(t)
		},
		"hung for less than the lease": func(_ *testing.T, s *redistest.Server) {
			s.Stop()
			time.Sleep(lease / 2)
			s.Cont()
		},
		"hung for longer than the lease": func(_ *testing.T, s *redistest.Server) {
			s.Stop()
			time.Sleep(lease * 3 / 2)
			s.Cont()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, charge := redistest.Start(t), slotOf("k", limit)
			o := redis.Options{Addresses: []string{server.Addr}}
			a, b, c := newSharer(t, o), newSharer(t, o), &census{limit: limit}
			end := press(t, c, charge, a, b)
			caddyrun.Eventually(t, patient, "all is held", func() bool { open, n := c.now(); return open == limit && n > 2*limit })
			fail(t, server)
			caddyrun.Eventually(t, patient, "the server answers", func() bool { return server.Client(t).Ping(t.Context()).Err() == nil })
			back := time.Now()
			_, before := c.now()
			caddyrun.Eventually(t, patient, "units are held again", func() bool { open, n := c.now(); return open >= limit && n > before+4*limit })
			checkCensus(t, c, limit, back)
			end()
			holdsNone(t, newHeld(t, server.Addr), "k")
		})
	}
}

// checkCensus holds that no more than lost was admitted above the limit, and none later than a second after the server was back.
func checkCensus(t *testing.T, c *census, lost int64, back time.Time) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	over := max(0, c.most-c.limit)
	if over > lost {
		t.Errorf("%d units above the limit, want %d at most", over, lost)
	}
	last := time.Duration(0)
	for _, at := range c.over {
		last = max(last, at.Sub(back))
	}
	if last > healed {
		t.Errorf("a unit above the limit was admitted %s after Redis was back", last)
	}
	t.Logf("%d admitted; at most %d above the limit of %d, the last of %d such admissions %s after Redis was back", c.admitted, over, c.limit, len(c.over), last.Round(time.Millisecond))
}

// TestHeldLocally has two processes decide on their own while Redis is away: each on what it holds already, and with share on its
// part of the limit. Redis has what they hold within a second once it is back.
func TestHeldLocally(t *testing.T) {
	const limit = 10
	for name, c := range map[string]struct {
		share bool
		most  int64
	}{"alone": {false, limit}, "share": {true, limit / 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			o := redis.Options{Addresses: []string{server.Addr}}
			all := []*sharer{newSharer(t, o), newSharer(t, o)}
			held := make([]int64, len(all))
			charge := []window.Charge{slotOf("k", limit)}
			for i, s := range all {
				s.guard.EnableLocal()
				s.guard.Join()
				for range 3 + i {
					if ds, err := s.guard.Take(t.Context(), charge); err != nil || !window.Allowed(ds) {
						t.Fatalf("%+v, %v", ds, err)
					}
					held[i]++
				}
			}
			for _, s := range all {
				caddyrun.Eventually(t, patient, "both count each other", func() bool { return s.guard.Instances() == 2 })
			}
			server.Kill()
			for i, s := range all {
				for held[i] <= 2*limit {
					_, err := s.guard.Take(t.Context(), charge)
					if err == nil {
						t.Fatal("a server that is gone decides")
					}
					ds, err := s.guard.TakeLocal(t.Context(), charge, err, c.share)
					if err != nil {
						t.Fatal(err)
					}
					if !window.Allowed(ds) {
						break
					}
					held[i]++
				}
				if held[i] != c.most {
					t.Errorf("process %d holds %d while Redis is away, want %d", i, held[i], c.most)
				}
			}
			server.Restart(t)
			back, look := time.Now(), newHeld(t, server.Addr)
			for {
				n := int64(0)
				for _, total := range totals(t, look, "k") {
					n += total.Units
				}
				if n == held[0]+held[1] {
					break
				}
				if time.Since(back) > healed {
					t.Fatalf("Redis counts %d of %v a second after it was back", n, held)
				}
				time.Sleep(5 * time.Millisecond)
			}
			t.Logf("%v held while Redis was away; Redis counts them %s after it was back", held, time.Since(back).Round(time.Millisecond))
			for i, s := range all {
				caddyrun.Eventually(t, patient, "Redis decides", func() bool {
					ds, err := s.guard.Take(t.Context(), charge)
					if err == nil && window.Allowed(ds) {
						t.Errorf("process %d takes a unit above the limit", i)
					}
					return err == nil
				})
			}
			for i, s := range all {
				for range held[i] {
					s.guard.Free(charge[0])
				}
			}
			holdsNone(t, look, "k")
		})
	}
}
