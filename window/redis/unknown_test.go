package redis_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestNotSent lets no server run a request, for one reason after the other: the error
// does not say that it may have been charged.
func TestNotSent(t *testing.T) {
	own := redistest.Start(t)
	if err := own.Client(t).Do(t.Context(), "ACL", "SETUSER", "poor", "on", ">p", "~*", "-@all", "+evalsha").Err(); err != nil {
		t.Fatal(err)
	}
	closes := listen(t, func(net.Conn) {})
	for name, o := range map[string]redis.Options{
		"a balancer without a server":     {Addresses: []string{closes}},
		"the same for a Cluster":          {Addresses: []string{closes}, Cluster: true},
		"a database that is not there":    {Addresses: []string{own.Addr}, DB: 99},
		"no script, and none may be sent": {Addresses: []string{own.Addr}, Username: "poor", Password: "p"},
		"no Cluster":                      {Addresses: []string{own.Addr}, Cluster: true},
	} {
		s := newStore(t, o)
		batch := make([][]window.Charge, 300) // several calls
		for i := range batch {
			batch[i] = []window.Charge{charge("zone", fmt.Sprint(i), 10, time.Hour)}
		}
		_, err := s.Take(t.Context(), batch[0])
		for i, r := range append(s.TakeBatch(t.Context(), batch), window.Result{Err: err}) {
			if !errors.Is(r.Err, window.ErrUnavailable) || errors.Is(r.Err, window.ErrUnknown) {
				t.Errorf("%s: request %d: %v, want that it was not charged", name, i, r.Err)
				break
			}
		}
	}
}

// TestRefusedBeforeTheScript has a server refuse whole calls, and then a command of the
// script: after the first no charge was made, after the second one may have been.
func TestRefusedBeforeTheScript(t *testing.T) {
	own := redistest.Start(t)
	admin := own.Client(t)
	permissions := append([]string{"~refused:*"}, strings.Fields(redis.Permissions)...)
	permit := func(t *testing.T, without string, more ...string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret"}
		for _, p := range append(permissions, more...) {
			if p != without {
				args = append(args, p)
			}
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		without string
		unknown bool
	}{{"+evalsha", false}, {"~refused:*", false}, {"+zadd", true}} {
		t.Run(test.without, func(t *testing.T) {
			permit(t, "")
			s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "refused", Username: "limiter", Password: "secret"})
			c := charge("zone", test.without, 10, time.Hour)
			take(t, s, c)
			permit(t, test.without)
			_, err := s.Take(t.Context(), []window.Charge{c})
			wantUnknown(t, "Take", test.unknown, err)
			wantUnknown(t, "ChargeMore", test.unknown, s.ChargeMore(t.Context(), c, 1))
			if !errors.Is(err, window.ErrRefused) || !strings.Contains(err.Error(), "lacks a permission") {
				t.Errorf("Take = %v, want ErrRefused, and advice", err)
			}
			if !test.unknown {
				for i, r := range s.TakeBatch(t.Context(), [][]window.Charge{{c}, {c}}) {
					wantUnknown(t, fmt.Sprintf("request %d of a batch", i), false, r.Err)
				}
			}
			permit(t, "")
			if n := charged(t, s, c); n != 1 {
				t.Errorf("%d units are charged, want 1", n)
			}
		})
	}
}

// TestScriptsAreNoCommand has a server that does not know EVALSHA.
func TestScriptsAreNoCommand(t *testing.T) {
	own := redistest.Start(t, "--rename-command", "EVALSHA", "")
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	_, err := s.Take(t.Context(), []window.Charge{charge("zone", "key", 10, time.Hour)})
	wantUnknown(t, "Take", false, err)
}

// nodesOfWhichOneIsFull runs a Cluster of which the second node has no memory for more.
func nodesOfWhichOneIsFull(t *testing.T) (addresses []string, free func()) {
	t.Helper()
	nodes := redistest.StartCluster(t, 2)
	memory := func(limit string) {
		if err := nodes[1].Client(t).ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	memory("1")
	return []string{nodes[0].Addr, nodes[1].Addr}, func() { memory("0") }
}

// TestSettledUnderOneName settles under two names, of which one is on a node that
// refuses it: that is not to be done again.
func TestSettledUnderOneName(t *testing.T) {
	addresses, free := nodesOfWhichOneIsFull(t)
	const now, before = "the secret of a fleet", "the secret before it"
	both := newStore(t, redis.Options{Addresses: addresses, Prefix: "both", KeySecret: now, FormerKeySecret: before})
	errs := make(map[string]error)
	for i := range 20 {
		key := fmt.Sprint(i)
		errs[key] = both.ChargeMore(t.Context(), countedCharge("zone", key), 5)
	}
	free()
	partly := 0
	for _, secret := range []string{now, before} {
		one := newStore(t, redis.Options{Addresses: addresses, Prefix: "both", KeySecret: secret})
		for key, err := range errs {
			if err == nil || charged(t, one, countedCharge("zone", key)) == 0 {
				continue
			}
			if partly++; !errors.Is(err, window.ErrUnknown) {
				t.Errorf("key %s: %v, want ErrUnknown: it is settled under one name", key, err)
			}
		}
	}
	if partly == 0 {
		t.Error("no key was settled under one name")
	}
}

// TestDeniedAndRefused makes one zone deny a request, and the node of another refuse it.
func TestDeniedAndRefused(t *testing.T) {
	addresses, _ := nodesOfWhichOneIsFull(t)
	s := newStore(t, redis.Options{Addresses: addresses, Prefix: "full"})
	full, refused := "", ""
	for i := range 50 { // a key on each node
		c := charge("zone", fmt.Sprint(i), 1, time.Hour)
		if _, err := s.Take(t.Context(), []window.Charge{c}); err == nil {
			full = c.Key
		} else {
			refused = c.Key
		}
	}
	other := newStore(t, redis.Options{Addresses: addresses, Prefix: "full"}) // which remembers no denial
	_, err := other.Take(t.Context(), []window.Charge{charge("zone", full, 1, time.Hour), charge("zone", refused, 1, time.Hour)})
	if !errors.Is(err, window.ErrRefused) || errors.Is(err, window.ErrUnknown) {
		t.Errorf("Take = %v, want a refusal, and that nothing was charged", err)
	}
}

// TestLeaseLostToOthers loses the reply to a lease for which others wait: what may be
// charged is the lease, and none of theirs.
func TestLeaseLostToOthers(t *testing.T) {
	p := startProxy(t)
	p.target.Store(&redistest.Start(t).Addr)
	s := newStore(t, redis.Options{Addresses: []string{p.addr}, Timeout: patience})
	c := leased(charge("leased", "key", 1_000_000, 10*time.Minute), 100, time.Minute)
	const others = 10
	lose := func() (failed int, err error) {
		errs := make(chan error, others)
		wait := func() {
			for range others {
				go func() {
					_, err := s.Take(t.Context(), []window.Charge{c})
					errs <- err
				}()
			}
			time.Sleep(50 * time.Millisecond) // most of them wait by then
			p.lose.Store(true)
		}
		takeAhead(t, s, c, 1)
		for redis.Leases(s).Left() > 0 {
			take(t, s, c)
		}
		p.onReply.Store(&wait)
		_, err = s.Take(t.Context(), []window.Charge{c})
		for range others {
			if err := <-errs; err != nil {
				failed++
				if errors.Is(err, window.ErrUnknown) {
					t.Errorf("who waited for it: %v, want that nothing was charged", err)
				}
			}
		}
		return failed, err
	}
	for range 20 { // the reply may be that to the end of the lease before
		if failed, err := lose(); err != nil && failed > 0 {
			if !errors.Is(err, window.ErrUnknown) {
				t.Errorf("who took the lease: %v, want ErrUnknown", err)
			}
			return
		}
	}
	t.Error("no request waited for a lease that was lost")
}

// TestWrongTypeIsNotCharged has something else in the place of one of two counters.
func TestWrongTypeIsNotCharged(t *testing.T) {
	s := newStore(t, redis.Options{Prefix: "wrong"})
	if err := server.Client(t).Set(t.Context(), "wrong:2-zset:zone:key", "v", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := s.Take(t.Context(), []window.Charge{charge("free", "key", 2, time.Hour), charge("zone", "key", 2, time.Hour)})
	if !errors.Is(err, window.ErrForeign) || errors.Is(err, window.ErrUnknown) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("Take = %v, want ErrForeign, and that nothing was charged", err)
	}
}
