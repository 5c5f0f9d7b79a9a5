package faults_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/heldtest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

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

// process returns what takes units of a charge, and gives them back.
func (s *sharer) process(t *testing.T, charge window.Charge) heldtest.Process {
	return heldtest.Process{
		Take: func() bool {
			ds, err := s.guard.Take(t.Context(), []window.Charge{charge})
			return err == nil && window.Allowed(ds)
		},
		Free: func() { s.guard.Free(charge) },
	}
}

// TestHeldThroughOutages lets two processes hold all that they may, some of it for long, when Redis loses their totals, or takes
// them for dead. What they admit above the limit is at most what they held then, and nothing more from a second on after Redis
// answers again.
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
			c := heldtest.New(limit)
			processes := []heldtest.Process{newSharer(t, o).process(t, charge), newSharer(t, o).process(t, charge)}
			free := c.Keep(t, 3, processes...)
			end := c.Press(t, processes...)
			caddyrun.Eventually(t, patient, "all is held", func() bool { open, n := c.Now(); return open == limit && n > limit })
			fail(t, server)
			caddyrun.Eventually(t, patient, "the server answers", func() bool { return server.Client(t).Ping(t.Context()).Err() == nil })
			back := time.Now()
			_, before := c.Now()
			caddyrun.Eventually(t, patient, "units are held again", func() bool { open, n := c.Now(); return open >= limit && n > before+2*limit })
			c.Check(t, limit, back)
			end()
			free()
			holdsNone(t, newHeld(t, server.Addr), "k")
		})
	}
}

// TestHeldLocally lets two processes decide on their own while Redis is away: each on what it holds already, and with share on
// its part of the limit. Redis has what they hold within a second once it is back.
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
				if time.Since(back) > heldtest.Healed {
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
