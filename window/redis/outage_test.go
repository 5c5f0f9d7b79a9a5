package redis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
)

const (
	timeout = redis.DefaultTimeout
	// slack is how much later than its timeout a call may return.
	slack = 50 * time.Millisecond
	// back is how soon a server that is there again has to be used again.
	back = 2 * time.Second
)

// timed makes a call that has to fail, within its timeout.
func timed(t *testing.T, call func() error) error {
	t.Helper()
	err := within(t, timeout, call)
	if !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("a call = %v, want ErrUnavailable", err)
	}
	return err
}

// within makes a call that has to return within some time and slack. As the
// machine may be busy with something else, a call that is late is made again,
// twice at most.
func within(t *testing.T, limit time.Duration, call func() error) error {
	t.Helper()
	for late := 0; ; {
		start := time.Now()
		err := call()
		took := time.Since(start)
		if took <= limit+slack {
			return err
		}
		if late++; late == 3 || took > limit+10*slack {
			t.Errorf("a call took %s, want %s at most", took, limit+slack)
			return err
		}
	}
}

// TestClusterSilent asks a Cluster of which no node says what it holds.
func TestClusterSilent(t *testing.T) {
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	s := newStore(t, redis.Options{Addresses: []string{listen(t, silent), listen(t, silent), listen(t, silent)}, Timeout: timeout})
	two := []window.Charge{charge("zone", "key", 1, time.Hour), charge("zone", "another", 1, time.Hour)}
	timed(t, func() error { _, err := s.Take(t.Context(), two[:1]); return err })
	timed(t, func() error { _, err := s.Take(t.Context(), two); return err })
	timed(t, func() error { return s.ChargeMore(t.Context(), two[0], 1) })
	timed(t, func() error { return s.Ping(t.Context()) })
}

// TestHung stops a server while it is asked: no client waits longer than the
// timeout, and each request is charged at most once when it wakes up.
func TestHung(t *testing.T) {
	for name, poolSize := range map[string]int{"a connection for each": 16, "few connections": 2} {
		for _, connected := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, connected %v", name, connected), func(t *testing.T) {
				own := redistest.Start(t)
				s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: timeout, PoolSize: poolSize, Prefix: "hung"})
				if connected {
					parallel(8, func(i int) {
						_, _ = s.Take(t.Context(), []window.Charge{charge("warm", strconv.Itoa(i), 1, time.Second)})
					})
				}
				own.Stop()
				var requests atomic.Int64
				parallel(8, func(i int) {
					for n := range 4 {
						err := timed(t, func() error {
							key := strconv.FormatInt(requests.Add(1), 10)
							if n%2 == 0 {
								_, err := s.Take(t.Context(), []window.Charge{countedCharge("zone", key)})
								return err
							}
							r := s.TakeBatch(t.Context(), [][]window.Charge{
								{countedCharge("zone", key)},
								{countedCharge("other", key)},
							})
							return errors.Join(r[0].Err, r[1].Err)
						})
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("Take = %v, want DeadlineExceeded in its chain", err)
						}
					}
				})
				own.Cont()
				eventually(t, back, "a decision after the server has woken up", func() bool {
					_, err := s.Take(t.Context(), []window.Charge{charge("awake", "key", 100, time.Minute)})
					return err == nil
				})
				patient := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "hung"})
				var late int64
				for key := range requests.Load() {
					for _, zone := range []string{"zone", "other"} {
						n := charged(t, patient, countedCharge(zone, strconv.FormatInt(key+1, 10)))
						if late += n; n > 1 {
							t.Errorf("zone %s, key %d: charged %d times, want once at most", zone, key, n)
						}
					}
				}
				t.Logf("%d calls, %d keys charged late", requests.Load(), late)
			})
		}
	}
}

func parallel(n int, run func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { run(i) })
	}
	group.Wait()
}

func TestKilledAndBack(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: timeout})
	c := charge("zone", "key", 2, time.Hour)
	warm(t, s, "key")
	own.Kill()
	for range 20 {
		timed(t, func() error { _, err := s.Take(t.Context(), []window.Charge{c}); return err })
	}
	timed(t, func() error { return s.Ping(t.Context()) })
	timed(t, func() error { return s.Reset(t.Context(), c) })
	timed(t, func() error { return s.ChargeMore(t.Context(), c, 1) })
	own.Restart(t)
	eventually(t, back, "a ping after the restart", func() bool { return s.Ping(t.Context()) == nil })
	var ds []window.Decision
	eventually(t, patience, "a decision", func() bool {
		var err error
		ds, err = s.Peek(t.Context(), []window.Charge{c})
		return err == nil
	})
	if ds[0].Remaining != 2 {
		t.Errorf("after the restart: Peek = %+v, want an empty history", ds[0])
	}
}

// TestNeverThere asks a port where no process listens.
func TestNeverThere(t *testing.T) {
	s := newStore(t, redis.Options{Addresses: []string{"127.0.0.1:" + strconv.Itoa(redistest.FreePort(t))}, Timeout: timeout})
	err := timed(t, func() error { return s.Ping(t.Context()) })
	if !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("Ping = %v, want connection refused", err)
	}
}

func TestScriptFlush(t *testing.T) {
	own := redistest.Start(t)
	s, raw := newStore(t, redis.Options{Addresses: []string{own.Addr}}), own.Client(t)
	flush := func() {
		t.Helper()
		if err := raw.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c := charge("zone", "key", 1000, time.Hour)
	for range 5 {
		flush()
		take(t, s, c)
	}
	flush()
	requests := make([][]window.Charge, 300)
	for i := range requests {
		requests[i] = []window.Charge{c}
	}
	for i, r := range s.TakeBatch(t.Context(), requests) {
		if r.Err != nil || r.Decisions[0].Remaining != int64(994-i) {
			t.Fatalf("after SCRIPT FLUSH: result %d = %+v, want %d remaining", i, r, 994-i)
		}
	}
	if n := raw.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_script|load"); !strings.HasPrefix(n, fmt.Sprintf("calls=%d,", 6*len(scripts.All()))) {
		t.Errorf("SCRIPT LOAD: %s, want calls=%d: each script each time", n, 6*len(scripts.All()))
	}
	flush()
	if err := s.ChargeMore(t.Context(), c, 4); err != nil {
		t.Error(err)
	}
	flush()
	if ds, err := s.Peek(t.Context(), []window.Charge{c}); err != nil || ds[0].Remaining != 691 {
		t.Errorf("Peek = %+v, %v, want 691 remaining", ds, err)
	}
	flush()
	if err := s.Reset(t.Context(), c); err != nil {
		t.Error(err)
	}
	if err := raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if d := take(t, s, c)[0]; d.Remaining != 999 {
		t.Errorf("after FLUSHALL: Take = %+v, want an empty history", d)
	}
}

func TestContext(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Timeout: timeout})
	c := []window.Charge{charge("zone", "key", 1000, time.Hour)}
	warm(t, s, "key")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := timed(t, func() error { _, err := s.Take(gone, c); return err }); !errors.Is(err, context.Canceled) {
		t.Errorf("Take of one who has gone = %v, want context.Canceled", err)
	}
	own.Stop()
	defer own.Cont()
	going, cancel := context.WithCancel(t.Context())
	time.AfterFunc(timeout/5, cancel)
	if err := timed(t, func() error { _, err := s.Take(going, c); return err }); !errors.Is(err, context.Canceled) {
		t.Errorf("Take of one who goes = %v, want context.Canceled", err)
	}
	hurried, cancel := context.WithTimeout(t.Context(), timeout/5)
	defer cancel()
	if err := within(t, timeout/5, func() error { _, err := s.Take(hurried, c); return err }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Take with a deadline = %v, want context.DeadlineExceeded", err)
	}
}

func TestClosed(t *testing.T) {
	s := newStore(t, redis.Options{})
	take(t, s, charge("zone", "key", 1, time.Second))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	timed(t, func() error { return s.Ping(t.Context()) })
}
