package stores

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func openMemory(t *testing.T, maxKeys int64) *Memory {
	t.Helper()
	m := &Memory{MaxKeys: maxKeys}
	if err := m.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	return m
}

func take(t *testing.T, m *Memory, key string) window.Decision {
	t.Helper()
	ds, err := m.Store().Take(context.Background(), []window.Charge{{
		Zone: "z", Key: key, Cost: 1, Policies: []window.Policy{{Limit: 3, Window: time.Hour}}, Algorithm: window.Zset{},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return ds[0]
}

// Counts outlive a reload, where the new configuration comes before the old one
// goes, and a failed one, and end with the last.
func TestMemoryOutlivesReload(t *testing.T) {
	first := openMemory(t, 0)
	take(t, first, "k")
	second := openMemory(t, 10)
	if err := first.Cleanup(); err != nil {
		t.Errorf("Cleanup: got %v, want no error", err)
	}
	failed := &Memory{MaxKeys: -1}
	if err := failed.Provision(caddy.Context{}); err == nil {
		t.Error("max_keys -1: got no error")
	}
	if err := failed.Cleanup(); err != nil {
		t.Errorf("Cleanup of a refused module: got %v, want no error", err)
	}
	if d := take(t, second, "k"); d.Remaining != 1 {
		t.Errorf("after a reload: got %d remaining, want 1", d.Remaining)
	}
	if err := second.Cleanup(); err != nil {
		t.Errorf("Cleanup: got %v, want no error", err)
	}
	third := openMemory(t, 0)
	defer func() { _ = third.Cleanup() }()
	if d := take(t, third, "k"); d.Remaining != 2 {
		t.Errorf("after the last: got %d remaining, want 2", d.Remaining)
	}
}

// Of several caps the largest holds, as long as its module lives.
func TestMemoryCap(t *testing.T) {
	small, large := openMemory(t, 64), openMemory(t, 10_000)
	store := small.Store().(*memory.Store)
	fill := func(prefix string) int64 {
		for i := range 2000 {
			take(t, small, prefix+strconv.Itoa(i))
		}
		return store.Keys()
	}
	if n := fill("a"); n != 2000 {
		t.Errorf("under the larger cap: got %d keys, want 2000", n)
	}
	if err := large.Cleanup(); err != nil {
		t.Error(err)
	}
	// Keys go as new ones come, and a cap holds give or take one in each of 64 shards.
	if n := fill("b"); n > 1000 {
		t.Errorf("under the smaller cap: got %d keys, want about 64", n)
	}
	if err := small.Cleanup(); err != nil {
		t.Error(err)
	}
}

func TestMemoryDefaultCap(t *testing.T) {
	m := openMemory(t, 0)
	defer func() { _ = m.Cleanup() }()
	if m.MaxKeys != memory.DefaultMaxKeys {
		t.Errorf("max_keys: got %d, want %d", m.MaxKeys, memory.DefaultMaxKeys)
	}
}

func TestMemoryCaddyfile(t *testing.T) {
	for text, want := range map[string]int64{
		"memory":                           0,
		"memory {\n}":                      0,
		"memory {\nmax_keys 1\n}":          1,
		"memory {\nmax_keys 2147483647\n}": 2147483647,
	} {
		m := new(Memory)
		if err := m.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err != nil || m.MaxKeys != want {
			t.Errorf("%q: got %d, %v, want %d", text, m.MaxKeys, err, want)
		}
	}
}

func TestMemoryRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"memory 5":                            `wrong argument count or unexpected line ending after '5'; write store memory, with max_keys <n> in a block, at Testfile:1`,
		"memory {\nsize 5\n}":                 `unrecognized subdirective "size" of store memory; use max_keys, at Testfile:2`,
		"memory {\nmax_keys\n}":               `an argument is missing after 'max_keys'; write max_keys <n>; is a {$VARIABLE} empty?, at Testfile:2`,
		"memory {\nmax_keys 5 6\n}":           `wrong argument count or unexpected line ending after '5'; write max_keys <n>, at Testfile:2`,
		"memory {\nmax_keys 5\nmax_keys 5\n}": `max_keys is given twice; keep one, at Testfile:3`,
		"memory {\nmax_keys many\n}":          `store memory: max_keys "many" is not a whole number, at Testfile:2`,
		"memory {\nmax_keys 0\n}":             `store memory: max_keys 0: must be from 1 to 2147483647, at Testfile:2`,
		"memory {\nmax_keys -1\n}":            `store memory: max_keys -1: must be from 1 to 2147483647, at Testfile:2`,
		"memory {\nmax_keys 2147483648\n}":    `store memory: max_keys 2147483648: must be from 1 to 2147483647, at Testfile:2`,
	} {
		err := new(Memory).UnmarshalCaddyfile(caddyfile.NewTestDispenser(text))
		if err == nil || err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
	for n, want := range map[int64]string{-1: `store memory: max_keys -1`, 1 << 31: `store memory: max_keys 2147483648`} {
		m := &Memory{MaxKeys: n}
		err := m.Provision(caddy.Context{})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("max_keys %d: got %v, want %s", n, err, want)
		}
		if err := errors.Join(m.Cleanup()); err != nil {
			t.Errorf("max_keys %d: Cleanup: got %v, want no error", n, err)
		}
	}
}
