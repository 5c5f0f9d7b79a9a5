package distance_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// The user at the servers of these tests.
const user, password = "limiter", "s3cret"

// all measures the table in docs/reliability.md.
var all = flag.Bool("distance.all", false, "measure at all distances, not only where Redis was not used once")

// place is a kind of server, behind lines of a round trip.
type place struct {
	name  string
	start func(t *testing.T, roundTrip time.Duration) (redis.Options, []*line)
}

var places = []place{
	{"one server", func(t *testing.T, roundTrip time.Duration) (redis.Options, []*line) {
		l := startLine(t, redistest.Start(t).Addr, roundTrip)
		return redis.Options{Addresses: []string{l.addr}}, []*line{l}
	}},
	{"one server, TLS, AUTH and SELECT", func(t *testing.T, roundTrip time.Duration) (redis.Options, []*line) {
		cert := redistest.NewCertificate(t)
		server := redistest.StartTLS(t, cert)
		addUser(t, server)
		l := startLine(t, server.TLSAddr, roundTrip)
		return redis.Options{Addresses: []string{l.addr}, TLS: cert.Client(), Username: user, Password: password, DB: 3}, []*line{l}
	}},
	{"Sentinel, AUTH and SELECT", func(t *testing.T, roundTrip time.Duration) (redis.Options, []*line) {
		server := redistest.Start(t)
		addUser(t, server)
		l := startLine(t, server.Addr, roundTrip)
		sentinel := startLine(t, redistest.StartSentinel(t, &redistest.Server{Addr: l.addr}, "main").Addr, roundTrip)
		return redis.Options{Addresses: []string{sentinel.addr}, Master: "main", Username: user, Password: password, DB: 3}, []*line{l, sentinel}
	}},
	{"Cluster, TLS and AUTH", func(t *testing.T, roundTrip time.Duration) (redis.Options, []*line) {
		cert := redistest.NewCertificate(t)
		l := listenFar(t, roundTrip)
		_, port, _ := net.SplitHostPort(l.addr)
		node := redistest.StartTLS(t, cert, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-tls-port", port)
		addUser(t, node)
		l.serve(node.TLSAddr)
		if err := node.OwnAllSlots(t.Context()); err != nil {
			t.Fatal(err)
		}
		return redis.Options{Addresses: []string{l.addr}, Cluster: true, TLS: cert.Client(), Username: user, Password: password}, []*line{l}
	}},
}

func addUser(t *testing.T, s *redistest.Server) {
	t.Helper()
	if err := s.Client(t).Do(t.Context(), "ACL", "SETUSER", user, "on", ">"+password, "~*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
}

// TestDistance has servers at a round trip that a call fits into: Redis decides on 19 of 20
// requests at least, from two seconds after the first one on, whether they come one by one or
// several at a time.
//
// What is measured for the table has the default timeout. Otherwise distance and timeout are twice
// as long, because other tests keep the machine busy, and a call has what is left of the timeout. A
// machine that does something else for longer is given another three seconds.
func TestDistance(t *testing.T) {
	const windows = 10
	stretch, length := time.Duration(2), 3*time.Second
	if *all {
		stretch, length = 1, 2*time.Second
	}
	for _, callers := range []int{1, 8} {
		for _, p := range places {
			for _, ms := range []int{5, 30, 60, 80, 95} {
				if !*all && ms != 60 && ms != 80 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d at a time/%d ms", p.name, callers, ms), func(t *testing.T) {
					o, lines := p.start(t, stretch*time.Duration(ms)*time.Millisecond)
					o.Timeout = stretch * redis.DefaultTimeout
					store := redis.New(o).Engine().(fallback.Store)
					guard := fallback.New(store, fallback.Options{})
					guard.EnableLocal()
					defer func() {
						guard.DisableLocal()
						_ = guard.Close()
						_ = store.Close()
					}()
					_ = use(guard, callers, length)
					for i := range windows {
						before := connections(lines)
						r := use(guard, callers, length)
						more := connections(lines) - before
						slices.Sort(r.took)
						t.Logf("| %s | %d | %d ms | %.1f%% of %d | %s | %s | %.1f |", p.name, callers, ms, 100*float64(r.byRedis)/float64(len(r.took)), len(r.took),
							quantile(r.took, 0.5), quantile(r.took, 0.99), float64(more)/length.Seconds())
						// At 95 ms, any machine may take the rest of the timeout.
						if ms == 95 || r.byRedis*20 >= len(r.took)*19 {
							return
						}
						t.Logf("one of the causes: %v", r.cause)
						if slices.ContainsFunc(lines, func(l *line) bool { return l.broken.Load() }) {
							t.Fatal("the server of the test has ended")
						}
						if i == windows-1 {
							t.Errorf("Redis decided on less than 19 of 20 requests, %d times", windows)
						}
					}
				})
			}
		}
	}
}

func connections(lines []*line) (n int64) {
	for _, l := range lines {
		n += l.connections.Load()
	}
	return n
}

type result struct {
	byRedis int
	took    []time.Duration
	cause   error
}

// use makes callers make requests one after the other for a while.
func use(guard *fallback.Guard, callers int, d time.Duration) (r result) {
	var mu sync.Mutex
	var group sync.WaitGroup
	end := time.Now().Add(d)
	for caller := range callers {
		group.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				charges := []window.Charge{{
					Zone: "zone", Key: strconv.Itoa(caller), Cost: 1, Algorithm: window.Slices{},
					Policies: []window.Policy{{Limit: 1 << 20, Window: time.Hour}},
				}}
				start := time.Now()
				_, err := guard.Take(context.Background(), charges)
				if err != nil {
					_, _ = guard.TakeLocal(context.Background(), charges, err, false)
				}
				took := time.Since(start)
				mu.Lock()
				r.took = append(r.took, took)
				if err == nil {
					r.byRedis++
				} else if !errors.Is(err, breaker.ErrOpen) || r.cause == nil {
					r.cause = err
				}
				mu.Unlock()
				if err != nil {
					time.Sleep(10 * time.Millisecond) // as clients do
				}
			}
		})
	}
	group.Wait()
	return r
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(100 * time.Microsecond)
}
