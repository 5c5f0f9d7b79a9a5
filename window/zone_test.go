package window_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func newZone(t *testing.T, policies ...window.Policy) *window.Zone {
	t.Helper()
	z, err := window.NewZone("zone", window.Log{}, policies, window.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// TestZoneChecks holds that a charge of a zone that was changed is checked like any other.
func TestZoneChecks(t *testing.T) {
	z := newZone(t, window.Policy{Limit: 1, Window: time.Second})
	for name, change := range map[string]func(*window.Charge){
		"policies":  func(c *window.Charge) { c.Policies = []window.Policy{{Limit: -1, Window: time.Second}} },
		"none":      func(c *window.Charge) { c.Policies = nil },
		"cost":      func(c *window.Charge) { c.Cost = -1 },
		"algorithm": func(c *window.Charge) { c.Algorithm = window.Slices{Count: -1} },
		"nothing":   func(c *window.Charge) { c.Algorithm = nil },
		"fields":    func(c *window.Charge) { c.Fields = []string{"name without value"} },
		"pack":      func(c *window.Charge) { c.Pack = 1 },
		"lease":     func(c *window.Charge) { c.Lease.Units = 1 },
		"lookback":  func(c *window.Charge) { c.Lookback = time.Microsecond },
	} {
		c := z.Charge("key", 1)
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		if change(&c); !errors.Is(c.Check(), window.ErrInvalid) {
			t.Errorf("%s: Check = %v, want ErrInvalid", name, c.Check())
		}
	}
}

// TestZoneKeepsPolicies changes the policies that a zone was made of.
func TestZoneKeepsPolicies(t *testing.T) {
	policies := []window.Policy{{Limit: 5, Window: time.Second}}
	z := newZone(t, policies...)
	policies[0].Limit = -1
	if c := z.Charge("key", 1); c.Policies[0].Limit != 5 {
		t.Errorf("the zone has a limit of %d, want 5", c.Policies[0].Limit)
	}
}

// TestLimiter has the decision that matters most: the tightest limit, and the longest wait.
func TestLimiter(t *testing.T) {
	now := int64(1_800_000_000_000)
	store := memory.New(memory.Options{Now: func() int64 { return now }})
	defer func() { _ = store.Close() }()
	l := window.Limiter{Store: store, Zone: newZone(t, window.Policy{Limit: 3, Window: time.Second}, window.Policy{Limit: 4, Window: time.Hour})}
	for i, want := range []window.Decision{
		{Allowed: true, Limit: 3, Remaining: 1},
		{Allowed: false, Limit: 3, Remaining: 1, RetryAfter: time.Second},
		{Allowed: true, Limit: 4, Remaining: 0},
		{Allowed: false, Limit: 4, Remaining: 0, RetryAfter: time.Hour - time.Second},
	} {
		if i == 2 {
			now += 1_000
		}
		d, err := l.AllowN(context.Background(), "key", 2)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed != want.Allowed || d.Limit != want.Limit || d.Remaining != want.Remaining || d.RetryAfter != want.RetryAfter {
			t.Errorf("request %d: %+v, want %+v", i, d, want)
		}
	}
	if d, err := l.Allow(context.Background(), "another"); err != nil || !d.Allowed || d.Remaining != 2 {
		t.Errorf("another key: %+v, %v", d, err)
	}
	if _, err := l.AllowN(context.Background(), "key", -1); !errors.Is(err, window.ErrInvalid) {
		t.Errorf("a cost of -1: %v, want ErrInvalid", err)
	}
}
