package faults_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// names answers for one name with an address, which may change. Without one it fails,
// and with "silent" it does not answer.
type names struct{ address atomic.Value }

// startNames makes this process ask it, until the end of the test.
func startNames(t *testing.T, name string) *names {
	t.Helper()
	n := new(names)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: conn, NotifyStartedFunc: func() { close(started) }}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		address := n.address.Load().(string)
		if address == "silent" {
			return
		}
		reply := new(dns.Msg).SetReply(question)
		switch q := question.Question[0]; {
		case address == "":
			reply.Rcode = dns.RcodeServerFailure
		case q.Name != name+".":
			reply.Rcode = dns.RcodeNameError
		case q.Qtype == dns.TypeA:
			reply.Answer = append(reply.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(address)})
		}
		_ = w.WriteMsg(reply)
	})
	go func() { _ = server.ActivateAndServe() }()
	<-started
	nameServer.Store(conn.LocalAddr().String())
	t.Cleanup(func() { _ = server.Shutdown() })
	return n
}

// nameServer is the address that this process asks.
var nameServer atomic.Value

func init() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", nameServer.Load().(string))
	}}
}

// resolver is how long Go's resolver waits for an answer before it asks again, unless
// /etc/resolv.conf says otherwise.
const resolver = 5 * time.Second

// watchBreaker guards a store until the end of the test, and closes it then. The channel has why the breaker opened.
func watchBreaker(t *testing.T, store *redis.Store) (*breaker.Breaker, <-chan error) {
	causes := make(chan error, 10)
	b := breaker.New(store, func(_ string, open bool, cause error) {
		if open {
			causes <- cause
		}
	}, nil)
	t.Cleanup(func() {
		_ = b.Close()
		_ = store.Close()
	})
	return b, causes
}

// TestAddressChanges gives the name of the server another address, and none.
func TestAddressChanges(t *testing.T) {
	const name = "redis.test"
	dns := startNames(t, name)
	old, next := redistest.Start(t), redistest.Start(t)
	one := startNetwork(t, "127.0.0.1:0", old.Addr)
	_, port, _ := net.SplitHostPort(one.Listen)
	two := startNetwork(t, net.JoinHostPort("127.0.0.2", port), next.Addr)
	dns.address.Store("127.0.0.1")

	store := redis.New(redis.Options{Addresses: []string{net.JoinHostPort(name, port)}, Timeout: timeout})
	b, causes := watchBreaker(t, store)
	take := func() error {
		start := time.Now()
		_, err := b.Take(t.Context(), []window.Charge{{
			Zone: "zone", Key: "key", Cost: 1, Algorithm: window.Slices{}, Policies: []window.Policy{{Limit: 1_000_000, Window: time.Hour}},
		}})
		if took := time.Since(start); took > 10*timeout {
			t.Errorf("a decision took %s", took)
		}
		return err
	}
	decides := func() bool { return take() == nil }
	caddyrun.Eventually(t, patient, "a first decision", decides)

	one.Stop()
	dns.address.Store("127.0.0.2")
	caddyrun.Eventually(t, back, "the server at the new address decides", decides)
	if n := next.Client(t).Exists(t.Context(), "sw:2-slices:zone:key").Val(); n != 1 {
		t.Error("nothing was charged at the new address")
	}

	for _, fault := range []struct {
		address, cause string
		back           time.Duration
	}{
		{"", "lookup " + name, back},
		{"silent", "no answer within", back + resolver},
	} {
		dns.address.Store(fault.address)
		two.Stop()
		for len(causes) > 0 {
			<-causes
		}
		caddyrun.Eventually(t, patient, "the breaker is open", func() bool { return errors.Is(take(), breaker.ErrOpen) })
		if cause := <-causes; !strings.Contains(cause.Error(), fault.cause) {
			t.Errorf("with the address %q: %v, want %q", fault.address, cause, fault.cause)
		}
		if err := two.Start(); err != nil {
			t.Fatal(err)
		}
		dns.address.Store("127.0.0.2")
		caddyrun.Eventually(t, fault.back, "the server decides again", decides)
	}
}

// TestNameMovesToTheNewPrimary has the name of the server name another one, while the server that it
// named before goes on to answer, as a replica, on connections that stay open.
func TestNameMovesToTheNewPrimary(t *testing.T) {
	const name = "primary.test"
	dns := startNames(t, name)
	cert := redistest.NewCertificate(t)
	old, next := redistest.StartTLS(t, cert), redistest.StartTLS(t, cert)
	host, nextPort, _ := net.SplitHostPort(next.Addr)
	for _, c := range []struct {
		says    string // the old primary
		encrypt *tls.Config
		old     []any
	}{
		{"READONLY", nil, []any{"REPLICAOF", host, nextPort}},
		{"READONLY", &tls.Config{InsecureSkipVerify: true}, []any{"REPLICAOF", host, nextPort}}, //nolint:gosec // in place of a certificate for the name
		{"MASTERDOWN", nil, []any{"REPLICAOF", "127.0.0.1", "1"}},
	} {
		t.Run(fmt.Sprintf("%s, TLS %t", c.says, c.encrypt != nil), func(t *testing.T) {
			from, to := old.Addr, next.Addr
			if c.encrypt != nil {
				from, to = old.TLSAddr, next.TLSAddr
			}
			one := startNetwork(t, "127.0.0.1:0", from)
			_, port, _ := net.SplitHostPort(one.Listen)
			startNetwork(t, net.JoinHostPort("127.0.0.2", port), to)
			dns.address.Store("127.0.0.1")
			ctx, is := t.Context(), old.Client(t)
			is.Do(ctx, "REPLICAOF", "NO", "ONE")
			is.ConfigSet(ctx, "replica-serve-stale-data", map[bool]string{true: "no", false: "yes"}[c.says == "MASTERDOWN"])
			store := redis.New(redis.Options{Addresses: []string{net.JoinHostPort(name, port)}, Timeout: timeout, Prefix: port, TLS: c.encrypt})
			b, causes := watchBreaker(t, store)
			decides := func() bool {
				_, err := b.Take(ctx, []window.Charge{{
					Zone: "zone", Key: "key", Cost: 1, Algorithm: window.Zset{}, Policies: []window.Policy{{Limit: 1_000_000, Window: time.Hour}},
				}})
				return err == nil
			}
			caddyrun.Eventually(t, patient, "a first decision", decides)
			var open sync.WaitGroup // so that there are many connections
			for range 20 {
				open.Go(func() { _, _ = store.Engine().(engine.Describer).Describe(ctx) })
			}
			open.Wait()

			is.Do(ctx, c.old...)
			caddyrun.Eventually(t, patient, "the breaker is open", func() bool { return !decides() && len(causes) > 0 })
			if cause := <-causes; !strings.Contains(cause.Error(), c.says) {
				t.Errorf("the cause is %v, want %s", cause, c.says)
			}
			dns.address.Store("127.0.0.2")
			caddyrun.Eventually(t, back, "the new primary decides", decides)
			if n := next.Client(t).Exists(ctx, port+":2-zset:zone:key").Val(); n != 1 {
				t.Error("nothing was charged at the new address")
			}
		})
	}
}
