package redis_test

import (
	"crypto/tls"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestPermissions does everything as a user of few permissions, and fails with one less.
func TestPermissions(t *testing.T) {
	permissions := append(strings.Fields(redis.Permissions), "~acl:*")
	own := redistest.Start(t)
	admin := own.Client(t)
	setUser := func(without string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret"}
		for _, p := range permissions {
			if p != without {
				args = append(args, p)
			}
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var now func() int64
	open := func(password string) *redis.Store {
		return newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "acl", Username: "limiter", Password: password, Now: now})
	}
	// Some commands are for what comes within one millisecond only.
	both := func() error {
		defer func() { now = nil }()
		s := open("secret")
		if err := everything(t, s); err != nil {
			return err
		}
		if err := longHistory(t, s); err != nil {
			return err
		}
		clock := windowtest.NewClock()
		now = clock.Now
		s = open("secret")
		if err := everything(t, s); err != nil {
			return err
		}
		return idleHistory(t, s, clock)
	}
	setUser("")
	if err := both(); err != nil {
		t.Fatalf("with all permissions: %v", err)
	}
	for _, p := range permissions {
		setUser(p)
		admin.FlushAll(t.Context())
		admin.ScriptFlush(t.Context())
		if err := both(); err == nil || !strings.Contains(err.Error(), "lacks a permission") {
			t.Errorf("without %s: %v, want an error that names the permissions", p, err)
		}
	}
	setUser("")
	admin.FlushAll(t.Context())
	inDB := redis.Options{Addresses: []string{own.Addr}, Prefix: "acl", Username: "limiter", Password: "secret", DB: 3}
	if err := everything(t, newStore(t, inDB)); err == nil || !strings.Contains(err.Error(), "lacks a permission") {
		t.Errorf("in database 3: %v, want an error that names the permissions", err)
	}
	admin.Do(t.Context(), "ACL", "SETUSER", "limiter", "+select")
	if err := everything(t, newStore(t, inDB)); err != nil {
		t.Errorf("in database 3, with +select: %v", err)
	}
	if err := open("wrong").Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with a wrong password: %v, want WRONGPASS", err)
	}
	batch := make([][]window.Charge, 300) // several calls
	for i := range batch {
		batch[i] = []window.Charge{charge("batch", strconv.Itoa(i), 1, time.Minute)}
	}
	for i, r := range open("wrong").TakeBatch(t.Context(), batch) {
		if r.Err == nil || !strings.Contains(r.Err.Error(), "WRONGPASS") || !errors.Is(r.Err, window.ErrRefused) || errors.Is(r.Err, window.ErrUnknown) {
			t.Fatalf("request %d of a batch with a wrong password: %v, want WRONGPASS, and nothing charged", i, r.Err)
		}
	}
	setUser("")
	admin.Do(t.Context(), "ACL", "SETUSER", "default", "off")
	if err := open("secret").Ping(t.Context()); err != nil {
		t.Errorf("without the default user: %v", err)
	}
	anonymous := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	if err := anonymous.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "wants a password") {
		t.Errorf("without credentials: %v, want advice to add a password", err)
	}
}

// everything makes every call of a store, in every way that sends other commands,
// and returns the first error.
func everything(t *testing.T, s *redis.Store) error {
	t.Helper()
	if err := s.Ping(t.Context()); err != nil {
		return err
	}
	if _, err := redis.Full(s).Register(t.Context()); err != nil {
		return err
	}
	if err := redis.Full(s).Leave(t.Context()); err != nil {
		return err
	}
	charges := []window.Charge{packed("zone", "key", 1, 2, time.Minute)}
	for _, algo := range algorithms {
		c := charge("zone", "key", 2, time.Minute)
		c.Algorithm = algo
		charges = append(charges, c)
	}
	for _, c := range charges {
		var at int64
		for range 3 {
			ds, err := s.Take(t.Context(), []window.Charge{c})
			if err != nil {
				return err
			}
			at = ds[0].At
		}
		if _, err := s.Peek(t.Context(), []window.Charge{c}); err != nil {
			return err
		}
		for _, delta := range []int64{-1, 3, -10} {
			if err := engine.Settle(t.Context(), s, c, at, delta); err != nil {
				return err
			}
		}
		if err := s.GiveBack(t.Context(), c, at+1, 10); err != nil {
			return err
		}
		if err := s.Reset(t.Context(), c); err != nil {
			return err
		}
	}
	return nil
}

// idleHistory makes many layers' slices go by between two charges.
func idleHistory(t *testing.T, s *redis.Store, clock *windowtest.Clock) error {
	c := charge("zone", "idle", 10, time.Hour)
	c.Algorithm = window.Layers{Coarse: 10 * time.Second, Fine: time.Second}
	for range 3 {
		if _, err := s.Take(t.Context(), []window.Charge{c}); err != nil {
			return err
		}
		clock.Add(59 * 60 * 1000)
	}
	return nil
}

// longHistory makes a log of several chunks, settles its end and empties it. It
// waits for the server's clock to go on.
func longHistory(t *testing.T, s *redis.Store) error {
	c := charge("zone", "long", 2, time.Minute)
	c.Algorithm, c.Cost = window.Log{}, 0
	clock := func() (int64, error) {
		ds, err := s.Peek(t.Context(), []window.Charge{c})
		if err != nil {
			return 0, err
		}
		return ds[0].At, nil
	}
	first, err := clock()
	at := first
	for records := 0; err == nil && records < 40; {
		before := at
		if err = s.ChargeMore(t.Context(), c, 1<<40); err == nil {
			at, err = clock()
		}
		if at > before {
			records++
		}
	}
	for ; err == nil && at >= first; at-- {
		err = s.GiveBack(t.Context(), c, at, window.MaxProduct)
	}
	return err
}

func TestTLS(t *testing.T) {
	cert := redistest.NewCertificate(t)
	addresses := []string{redistest.StartTLS(t, cert).TLSAddr}
	s := newStore(t, redis.Options{Addresses: addresses, TLS: cert.Client()})
	if d := take(t, s, charge("zone", "key", 2, time.Minute))[0]; d.Remaining != 1 {
		t.Errorf("Take = %+v, want 1 remaining", d)
	}
	for want, o := range map[string]redis.Options{
		"failed to verify certificate": {TLS: &tls.Config{MinVersion: tls.VersionTLS12}},
		"does it want TLS":             {},
	} {
		o.Addresses = addresses
		if err := newStore(t, o).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Ping = %v, want %q", err, want)
		}
	}
	plain := newStore(t, redis.Options{TLS: cert.Client(), Timeout: timeout})
	timed(t, func() error { return plain.Ping(t.Context()) })
}

// TestSentinelPermissions has a user of few permissions at a Sentinel, where the
// default user is off.
func TestSentinelPermissions(t *testing.T) {
	own := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, own, "main")
	admin := sentinel.Client(t)
	setUser := func(without string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "watcher", "reset", "on", ">secret"}
		for _, p := range strings.Fields(redis.SentinelPermissions) {
			if p != without {
				args = append(args, p)
			}
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	open := func(user, password string) *redis.Store {
		return newStore(t, redis.Options{
			Addresses: []string{sentinel.Addr}, Master: "main", SentinelUsername: user, SentinelPassword: password,
		})
	}
	setUser("")
	if err := open("watcher", "secret").Ping(t.Context()); err != nil {
		t.Errorf("with all permissions: %v", err)
	}
	setUser("+sentinel|get-master-addr-by-name")
	if err := open("watcher", "secret").Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "Sentinels") || !strings.Contains(err.Error(), "+sentinel|get-master-addr-by-name") {
		t.Errorf("without a permission: %v, want an error that names those at the Sentinels", err)
	}
	if err := open("watcher", "wrong").Ping(t.Context()); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with a wrong password: %v, want an error without it", err)
	}
}
