package redis_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// What one store writes, the others of its prefix read. Of two that write at the same version the second
// one is told; a store of another prefix, and one that keeps no keys, have records of their own.
func TestOverrides(t *testing.T) {
	server, nodes := redistest.Start(t), redistest.StartCluster(t, 3)
	for name, o := range map[string]redis.Options{
		"standalone": {Addresses: []string{server.Addr}, Prefix: "ov", Timeout: 10 * time.Second},
		"cluster":    {Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: "ov", Timeout: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			a, b := newStore(t, o), newStore(t, o)
			write := func(s *redis.Store, known, next string, gone []string, records map[string]string, want string) {
				t.Helper()
				if got, err := redis.Full(s).WriteOverrides(ctx, known, next, gone, records); err != nil || got != want {
					t.Errorf("write: got version %q, %v, want %q", got, err, want)
				}
			}
			read := func(s *redis.Store, known, want string, records map[string]string) {
				t.Helper()
				version, got, err := redis.Full(s).ReadOverrides(ctx, known)
				if err != nil || version != want || fmt.Sprint(got) != fmt.Sprint(records) {
					t.Errorf("read: got %q %v, %v, want %q %v", version, got, err, want, records)
				}
			}
			read(a, "", "", nil)
			write(a, "", "1", nil, map[string]string{"x": "X", "y": "Y"}, "1")
			read(b, "", "1", map[string]string{"x": "X", "y": "Y"})
			read(b, "1", "1", nil)
			write(b, "1", "2", []string{"x"}, map[string]string{"z": "Z"}, "2")
			write(a, "1", "3", nil, nil, "2") // too late
			write(a, "", "3", nil, nil, "2")
			read(a, "1", "2", map[string]string{"y": "Y", "z": "Z"})
			other, hashed := o, o
			other.Prefix, hashed.KeySecret = "other", "secret"
			read(newStore(t, other), "", "", nil)
			read(newStore(t, hashed), "", "", nil)
		})
	}
}

// A user with the documented permissions may keep overrides: 1,000 records of 1 KiB.
func TestOverridesAtTheirMost(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~sw:*"}
	for _, p := range strings.Fields(redis.Permissions) {
		args = append(args, p)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, redis.Options{Addresses: []string{server.Addr}, Username: "limiter", Password: "secret", Prefix: "sw", Timeout: 10 * time.Second})
	records, gone := make(map[string]string), []string(nil)
	for i := range 1000 {
		id := fmt.Sprintf("%016d", i)
		records[id] = strings.Repeat("a", 1024)
		gone = append(gone, id)
	}
	for i, step := range []struct {
		gone    []string
		records map[string]string
	}{{nil, records}, {nil, records}, {gone, nil}} {
		known, next := fmt.Sprint(i), fmt.Sprint(i+1)
		if i == 0 {
			known = ""
		}
		if version, err := redis.Full(s).WriteOverrides(t.Context(), known, next, step.gone, step.records); err != nil || version != next {
			t.Fatalf("step %d: got %q, %v", i, version, err)
		}
		if _, got, err := redis.Full(s).ReadOverrides(t.Context(), ""); err != nil || len(got) != len(step.records) {
			t.Errorf("step %d: got %d records, %v", i, len(got), err)
		}
	}
}

func TestHashKey(t *testing.T) {
	s := newStore(t, redis.Options{KeySecret: "new", FormerKeySecret: "old"})
	for n, secret := range []string{"new", "old"} {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("anna"))
		if sum, ok := redis.Full(s).HashKey("anna", n); !ok || string(sum[:]) != string(mac.Sum(nil)) {
			t.Errorf("secret %d: got %x, %v", n, sum, ok)
		}
	}
	if _, ok := redis.Full(s).HashKey("anna", 2); ok || !redis.Full(s).HashesKeys() {
		t.Error("there is a third secret, or none")
	}
	if plain := newStore(t, redis.Options{}); redis.Full(plain).HashesKeys() {
		t.Error("a store without a secret hashes keys")
	}
}
