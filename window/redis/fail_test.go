package redis_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// wantUnknown wants an error that says whether the request may have been charged.
func wantUnknown(t *testing.T, what string, want bool, err error) {
	t.Helper()
	if !errors.Is(err, window.ErrUnavailable) || errors.Is(err, window.ErrUnknown) != want {
		t.Errorf("%s: %v, with ErrUnknown %v, want %v", what, err, errors.Is(err, window.ErrUnknown), want)
	}
}

// TestUnknown makes requests fail that the server did not get, or refused, and others of
// which this is unknown.
func TestUnknown(t *testing.T) {
	own := redistest.Start(t)
	s, raw := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: time.Second}), own.Client(t)
	warm(t, s, "key")
	one, two := []window.Charge{charge("zone", "key", 10, time.Hour)}, []window.Charge{charge("zone", "another", 10, time.Hour)}
	others := func(what string, want bool) {
		t.Helper()
		for _, r := range s.TakeBatch(t.Context(), [][]window.Charge{one, two}) {
			wantUnknown(t, "a batch: "+what, want, r.Err)
		}
		wantUnknown(t, "to settle: "+what, want, s.ChargeMore(t.Context(), one[0], 1))
	}
	ask := func(what string, want bool) {
		t.Helper()
		_, err := s.Take(t.Context(), one)
		wantUnknown(t, what, want, err)
		others(what, want)
	}
	for setting, undo := range map[[2]string]string{{"maxmemory", "1"}: "0", {"min-replicas-to-write", "1"}: "0"} {
		if err := raw.ConfigSet(t.Context(), setting[0], setting[1]).Err(); err != nil {
			t.Fatal(err)
		}
		ask(setting[0], false)
		if err := raw.ConfigSet(t.Context(), setting[0], undo).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := raw.ReplicaOf(t.Context(), "127.0.0.1", strconv.Itoa(redistest.FreePort(t))).Err(); err != nil {
		t.Fatal(err)
	}
	ask("a replica", false)
	if err := raw.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if n := charged(t, s, one[0]); n != 0 {
		t.Errorf("%d units were charged, want 0", n)
	}

	own.Stop()
	_, err := s.Take(t.Context(), one)
	wantUnknown(t, "a server that hangs", true, err)
	others("a server that does not answer a new connection", false)
	own.Cont()
	eventually(t, patience, "a decision", func() bool { return s.Ping(t.Context()) == nil })

	own.Kill()
	if s.Ping(t.Context()) == nil { // the connections that were are gone now
		t.Error("a killed server answers")
	}
	eventually(t, patience, "a refused connection", func() bool {
		_, err := s.Take(t.Context(), one)
		return err != nil && !errors.Is(err, window.ErrUnknown)
	})
	ask("a server that is not there", false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ask("a closed store", false)
}

// TestUnknownOnlyIfSent has a server hang while some requests are under way and others
// wait: those have certainly not been charged, and never will.
func TestUnknownOnlyIfSent(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: time.Second, Prefix: "sent"})
	warm(t, s, "key")
	own.Stop()
	const requests = 300 // more than two batches take
	unknown := make([]bool, requests)
	var group sync.WaitGroup
	for i := range requests {
		c := charge("zone", strconv.Itoa(i), 100, time.Hour)
		c.Cost = 8 // half of them are all that goes at once
		group.Go(func() {
			_, err := s.Take(t.Context(), []window.Charge{c})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Take = %v, want DeadlineExceeded", err)
			}
			unknown[i] = errors.Is(err, window.ErrUnknown)
		})
	}
	group.Wait()
	own.Cont()
	patient := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "sent"})
	eventually(t, patience, "nothing under way", func() bool { return inFlight(s) == 0 })
	var sent, late int
	for i := range requests {
		n := charged(t, patient, charge("zone", strconv.Itoa(i), 100, time.Hour))
		if n > 0 && !unknown[i] {
			t.Errorf("request %d was charged, and its error says that it was not", i)
		}
		if unknown[i] {
			sent++
		}
		if n > 0 {
			late++
		}
	}
	if sent == 0 || sent == requests {
		t.Errorf("%d of %d requests may have been charged, want some", sent, requests)
	}
	t.Logf("%d of %d may have been charged, %d were", sent, requests, late)
}

// TestUnknownReply cuts connections when the reply comes.
func TestUnknownReply(t *testing.T) {
	own, p := redistest.Start(t), startProxy(t)
	p.target.Store(&own.Addr)
	s := newStore(t, redis.Options{Addresses: []string{p.addr}, Timeout: time.Second})
	warm(t, s, "key")
	p.cut.Store(true)
	_, err := s.Take(t.Context(), []window.Charge{countedCharge("zone", "key")})
	wantUnknown(t, "a lost reply", true, err)
	p.cut.Store(false)
	eventually(t, back, "a decision when replies come again", func() bool { return s.Ping(t.Context()) == nil })
	if n := charged(t, s, countedCharge("zone", "key")); n != 1 {
		t.Errorf("%d units were charged, want 1", n)
	}
}

// testClusterUnknown makes a node refuse what others charge.
func testClusterUnknown(t *testing.T, s *redis.Store, node *redistest.Server) {
	full := func(memory string) {
		if err := node.Client(t).ConfigSet(t.Context(), "maxmemory", memory).Err(); err != nil {
			t.Fatal(err)
		}
	}
	full("1")
	defer full("0")
	answers := func(c window.Charge) bool {
		_, err := s.Take(t.Context(), []window.Charge{c})
		return err == nil
	}
	var there, gone []window.Charge
	for i := 0; len(there) < 2 || len(gone) < 2; i++ {
		c := charge("unknown", strconv.Itoa(i), 100, time.Hour)
		if answers(c) {
			there = append(there, c)
		} else {
			gone = append(gone, c)
		}
	}
	for what, r := range map[string]struct {
		charges []window.Charge
		unknown bool
	}{
		"all on the node that refuses": {gone[:2], false},
		"some on another node":         {[]window.Charge{gone[0], there[0]}, true},
		"some on another node, first":  {[]window.Charge{there[1], gone[1]}, true},
	} {
		_, err := s.Take(t.Context(), r.charges)
		wantUnknown(t, what, r.unknown, err)
	}
}

// TestLeaseEndsWhenSettled spends units beside a lease: there may be no room for it.
func TestLeaseEndsWhenSettled(t *testing.T) {
	s := newStore(t, redis.Options{})
	c := leased(charge("zone", "key", 100, time.Hour), 50, time.Minute)
	for range 20 {
		take(t, s, c)
	}
	if redis.Leases(s).Left() == 0 {
		t.Fatal("there is no lease")
	}
	if err := s.ChargeMore(t.Context(), c, 80); err != nil {
		t.Fatal(err)
	}
	if n := redis.Leases(s).Left(); n != 0 {
		t.Errorf("%d units are left in leases, want none", n)
	}
	for range 10 {
		if d := take(t, s, c)[0]; d.Allowed {
			t.Errorf("a request passes when all is spent: %+v", d)
		}
	}
}
