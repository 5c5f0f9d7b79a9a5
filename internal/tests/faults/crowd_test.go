package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// crowd is a store with its breaker, and what they tell.
type crowd struct {
	store *redis.Store
	guard *breaker.Breaker
	opens atomic.Int64
	told  chan error // why no more connections can be made
}

func newCrowd(t *testing.T, address string) *crowd {
	t.Helper()
	c := &crowd{told: make(chan error, 100)}
	c.store = redis.New(redis.Options{Addresses: []string{address}, Timeout: time.Second, Few: func(_ int, err error) { c.told <- err }})
	c.guard = breaker.New(c.store, func(_ string, open bool, cause error) {
		if open {
			c.opens.Add(1)
			t.Log(cause)
		}
	}, nil)
	t.Cleanup(func() {
		_ = c.guard.Close()
		_ = c.store.Close()
	})
	return c
}

func (c *crowd) take(key string) error {
	_, err := c.guard.Take(context.Background(), []window.Charge{{
		Zone: "zone", Key: key, Cost: 1, Algorithm: window.Zset{}, Policies: []window.Policy{{Limit: 1_000_000, Window: time.Second}},
	}})
	return err
}

// press makes many calls at once, each of which takes a connection.
func (c *crowd) press(t *testing.T) {
	var all sync.WaitGroup
	for k := range 20 {
		all.Go(func() {
			for range 50 {
				if _, err := c.store.Engine().(engine.Describer).Describe(context.Background()); err != nil && !errors.Is(err, window.ErrBusy) {
					t.Errorf("Describe: %v", err)
				}
				if err := c.take(fmt.Sprint(k)); err != nil && !errors.Is(err, window.ErrBusy) {
					t.Errorf("Take: %v", err)
				}
			}
		})
	}
	all.Wait()
}

// TestFewConnections has three Caddys on a server that takes ten connections: they share them, and
// the server is not away.
func TestFewConnections(t *testing.T) {
	server := redistest.Start(t, "--maxclients", "10")
	var crowds []*crowd
	for range 3 {
		c := newCrowd(t, server.Addr)
		caddyrun.Eventually(t, patient, "a first decision", func() bool { return c.take("first") == nil })
		crowds = append(crowds, c)
	}
	var all sync.WaitGroup
	for _, c := range crowds {
		all.Go(func() { c.press(t) })
	}
	all.Wait()
	for i, c := range crowds {
		if n := c.opens.Load(); n > 0 {
			t.Errorf("Caddy %d says %d times that the server is unavailable", i, n)
		}
		if n := len(c.told); n != 1 {
			t.Fatalf("Caddy %d tells %d times that there are no more connections, want once", i, n)
		}
		if err := redis.Shown(<-c.told); !strings.Contains(err.Error(), "maxclients") {
			t.Errorf("Caddy %d tells %q, want it to name maxclients", i, err)
		}
	}
}

// TestNoMoreConnections closes the listener while connections that are open work, and then
// ends these: the server is away only then.
func TestNoMoreConnections(t *testing.T) {
	server := redistest.Start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var copies sync.WaitGroup
	var mu sync.Mutex // guards conns
	var conns []net.Conn
	end := func() {
		_ = listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
	defer copies.Wait()
	defer end()
	copies.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", server.Addr)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			conns = append(conns, in, out)
			mu.Unlock()
			copies.Go(func() { _, _ = io.Copy(in, out) })
			copies.Go(func() { _, _ = io.Copy(out, in) })
		}
	})
	c := newCrowd(t, listener.Addr().String())
	caddyrun.Eventually(t, patient, "a first decision", func() bool { return c.take("first") == nil })
	_ = listener.Close()
	c.press(t)
	if n := c.opens.Load(); n > 0 {
		t.Errorf("the server was unavailable %d times while a connection was open", n)
	}
	if n := len(c.told); n != 1 {
		t.Errorf("told %d times that there are no more connections, want once", n)
	}
	end()
	caddyrun.Eventually(t, patient, "the breaker opens", func() bool { return errors.Is(c.take("first"), breaker.ErrOpen) })
	if n := len(c.told); n != 1 {
		t.Errorf("told %d times that there are no more connections after an outage, want once", n)
	}
}

// TestOutageIsToldOnce makes a server end with many connections open: nothing is said of its number
// of connections.
func TestOutageIsToldOnce(t *testing.T) {
	server := redistest.Start(t)
	c := newCrowd(t, server.Addr)
	caddyrun.Eventually(t, patient, "a first decision", func() bool { return c.take("first") == nil })
	c.press(t)
	server.Kill()
	start := time.Now()
	if err := c.take("first"); err == nil || errors.Is(err, window.ErrBusy) {
		t.Errorf("Take = %v, want an error that counts", err)
	}
	t.Logf("found out after %s", time.Since(start))
	caddyrun.Eventually(t, patient, "the breaker opens", func() bool { return errors.Is(c.take("first"), breaker.ErrOpen) })
	server.Restart(t)
	caddyrun.Eventually(t, patient, "the server decides", func() bool { return c.take("first") == nil })
	c.press(t)
	if n := len(c.told); n > 0 {
		t.Errorf("told %d times that there are no more connections: %v", n, <-c.told)
	}
}
