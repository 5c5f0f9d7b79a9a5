package faults_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// TestFlushes makes Redis forget counters, or scripts ten times a second: no request fails
// more than that the counters begin anew.
func TestFlushes(t *testing.T) {
	r := startRemote(t)
	s := startSites(t, r.server.Addr, patient)
	t.Run("FLUSHALL", func(t *testing.T) {
		passed := make(map[string]int)
		for range 2 {
			for policy, a := range s.visit("flushed", 300*time.Millisecond) {
				n := statuses(a)
				passed[policy] += n[http.StatusOK]
				if n[http.StatusOK]+n[http.StatusTooManyRequests] != len(a) && policy != naps {
					t.Errorf("%s: statuses %v, want 200 and 429", policy, n)
				}
			}
			r.do(t, "FLUSHALL")
			time.Sleep(remembered) // a denial outlasts what it is due to
		}
		for _, policy := range policies {
			if passed[policy] != 2*limit {
				t.Errorf("%s: %d passed, want %d twice", policy, passed[policy], limit)
			}
		}
	})
	t.Run("SCRIPT FLUSH", func(t *testing.T) {
		flushing, stop := context.WithCancel(t.Context())
		var flusher sync.WaitGroup
		flusher.Go(func() {
			for flushing.Err() == nil {
				if err := r.tenant.ScriptFlush(t.Context()).Err(); err != nil {
					t.Error(err)
				}
				time.Sleep(100 * time.Millisecond) // time to load the script and run it
			}
		})
		alone := s.visit("rewritten", time.Second)
		together := s.crowd("deny", "together-", 200)
		stop()
		flusher.Wait()
		for _, policy := range policies {
			if n := statuses(alone[policy]); n[http.StatusOK] != limit || n[http.StatusOK]+n[http.StatusTooManyRequests] != len(alone[policy]) {
				t.Errorf("%s: statuses %v, want %d × 200 and then 429", policy, n, limit)
			}
		}
		if n := statuses(together["deny"]); n[http.StatusOK] != 200 {
			t.Errorf("a crowd: statuses %v, want 200 × 200", n)
		}
		for i := range 200 {
			if n := r.charged(t, "deny", "together-"+strconv.Itoa(i)); n != 1 {
				t.Errorf("a request was charged %d times", n)
			}
		}
	})
	s.checkUnnoticed()
}

// remembered is how long a denial may outlast what it is due to.
const remembered = time.Second

// checkUnnoticed wants that the store was never away.
func (s *sites) checkUnnoticed() {
	s.Helper()
	if lines := s.logged(); len(lines) > 0 {
		s.Errorf("the log has %q, want nothing", lines)
	}
	if n := s.counted(); n != (counts{}) {
		s.Errorf("metrics: %+v, want nothing", n)
	}
	if !strings.Contains(s.metrics(), `caddy_sliding_window_breaker_open{node="",store="`+s.store+`"} 0`) {
		s.Errorf("no metrics of %s:\n%s", s.store, s.metrics())
	}
}

// TestHerd makes many come at once to a store that has just one connection, and none
// as yet, while the server sleeps for a moment: they wait, and are no outage.
func TestHerd(t *testing.T) {
	r := startRemote(t)
	s := startSites(t, r.server.Addr, patient, "pool_size 1")
	r.server.Stop()
	time.AfterFunc(timeout, r.server.Cont)
	const n = 300
	herd := s.crowd("deny", "herd-", n)
	if got := statuses(herd["deny"]); got[http.StatusOK] != n {
		t.Errorf("statuses %v, want %d × 200", got, n)
	}
	for i := range n {
		if n := r.charged(t, "deny", "herd-"+strconv.Itoa(i)); n != 1 {
			t.Errorf("a request was charged %d times", n)
		}
	}
	s.checkUnnoticed()
}

// TestHangingUp makes clients go while Redis takes its time: that is no outage.
func TestHangingUp(t *testing.T) {
	r := startRemote(t)
	s := startSites(t, r.server.Addr, timeout)
	caddyrun.Eventually(t, patient, "a first decision", func() bool { return s.get("deny", "warm").Status == http.StatusOK })
	before := s.counted()
	r.server.Stop()
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), timeout/10)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address["deny"]+"/", nil)
			req.Header.Set("X-Key", "hangs up")
			if resp, err := s.client.Do(req); err == nil {
				_ = resp.Body.Close()
				t.Error("an answer came from a hung Redis")
			}
		})
	}
	group.Wait()
	r.server.Cont()
	caddyrun.Eventually(t, back, "the store decides", func() bool { return s.get("deny", "probe").Status == http.StatusOK })
	if now := s.counted(); now != before {
		t.Errorf("metrics: %+v, want %+v as before", now, before)
	}
	if lines := s.logged(); len(lines) > 0 {
		t.Errorf("the log has %q, want nothing", lines)
	}
}

// TestLostConnections cuts the connections on which a crowd waits: those requests
// are lost, and the store is not away.
func TestLostConnections(t *testing.T) {
	r := startRemote(t)
	s := startSites(t, r.network.Listen, patient)
	caddyrun.Eventually(t, patient, "a first decision", func() bool { return s.get("deny", "warm").Status == http.StatusOK })
	r.server.Stop()
	time.AfterFunc(timeout, func() {
		for range 2 { // once for those under way, and for those that waited for them
			r.network.Stop()
			if err := r.network.Start(); err != nil {
				t.Error(err)
			}
			time.Sleep(timeout)
		}
		r.server.Cont()
	})
	const n = 50
	crowd := s.crowd("deny", "lost-", n)["deny"]
	if got := statuses(crowd); got[http.StatusServiceUnavailable] < 3 || got[http.StatusServiceUnavailable]+got[http.StatusOK] != n {
		t.Errorf("statuses %v, want 503 for some, and 200", got)
	}
	for i := range n {
		if n := r.charged(t, "deny", "lost-"+strconv.Itoa(i)); n > 1 {
			t.Errorf("a request was charged %d times", n)
		}
	}
	if a := s.get("deny", "next"); a.Status != http.StatusOK {
		t.Errorf("the next request: status %d, want 200", a.Status)
	}
	if lines := s.logged(); len(lines) > 0 {
		t.Errorf("the log has %q, want nothing", lines)
	}
	if n := s.errors("away"); n != statuses(crowd)[http.StatusServiceUnavailable] {
		t.Errorf("store_errors_total: %d, want %d", n, statuses(crowd)[http.StatusServiceUnavailable])
	}
}

// TestForeignData has the key of one counter hold other data: on_error decides on its
// requests until the data is removed, and other counters are not affected.
func TestForeignData(t *testing.T) {
	r := startRemote(t)
	s := startSites(t, r.server.Addr, patient)
	for _, policy := range policies {
		r.do(t, "SET", "sw:2-slices:"+policy+":"+visitor+"foreign", "something else")
	}
	want := map[string]int{"local": http.StatusOK, "allow": http.StatusOK, "deny": http.StatusServiceUnavailable}
	asked := 0
	for range limit {
		for _, policy := range policies {
			if a := s.get(policy, "foreign"); a.Status != want[policy] {
				t.Fatalf("%s: status %d, want %d", policy, a.Status, want[policy])
			}
			asked++
		}
	}
	if a := s.get("local", "foreign"); a.Status != http.StatusTooManyRequests {
		t.Errorf("local: status %d after %d requests, want 429", a.Status, limit)
	}
	asked++
	for _, policy := range policies {
		if a := s.get(policy, "own"); a.Status != http.StatusOK || r.charged(t, policy, "own") != 1 {
			t.Errorf("%s: another key: status %d, %d charged, want 200 and 1", policy, a.Status, r.charged(t, policy, "own"))
		}
	}
	if n := s.errors("foreign"); n != asked || s.open() {
		t.Errorf("store_errors_total foreign: %d, breaker_open %v, want %d and false", n, s.open(), asked)
	}
	if lines := s.logged(); len(lines) != 1 || !strings.Contains(lines[0], "WRONGTYPE") || !strings.Contains(lines[0], `"zones":["`) {
		t.Errorf("the log has %q, want one line that names a zone", lines)
	}
	s.keepsSecrets()
	for _, policy := range policies {
		r.do(t, "DEL", "sw:2-slices:"+policy+":"+visitor+"foreign")
		status, units := http.StatusOK, int64(1)
		if policy == "local" { // units that passed are booked
			status, units = http.StatusTooManyRequests, limit
		}
		if a := s.get(policy, "foreign"); a.Status != status || r.charged(t, policy, "foreign") != units {
			t.Errorf("%s: once it is removed: status %d, %d charged, want %d and %d", policy, a.Status, r.charged(t, policy, "foreign"), status, units)
		}
	}
}
