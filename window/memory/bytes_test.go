package memory

import (
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"
)

// TestBytesPerKey keeps 1,000,000 keys, as after a flood of clients that come once.
func TestBytesPerKey(t *testing.T) {
	const keys, most = 1_000_000, 144
	s := New(Options{MaxKeys: 2 * keys, SweepInterval: -1, Now: func() int64 { return 1_800_000_000_000 }})
	defer func() { _ = s.Close() }()
	c := charge("per_client", "", 100, time.Minute)
	before := heap()
	for i := range keys {
		c.Key = "a client with a name of some length " + strconv.Itoa(i)
		take(t, s, c)
	}
	if got := (heap() - before) / s.Keys(); got > most {
		t.Errorf("a key takes %d bytes, want %d at most", got, most)
	}
	if n := s.Keys(); n != keys {
		t.Errorf("%d keys are kept, want %d", n, keys)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestNoFalseSharing looks at where the parts of a store lie that cores write to.
func TestNoFalseSharing(t *testing.T) {
	var s Store
	var sh shard
	if n := unsafe.Sizeof(slot{}); n != 128 {
		t.Errorf("a slot has %d bytes, want 128, of which none shares a cache line with another", n)
	}
	if gap := unsafe.Offsetof(s.shards) - (unsafe.Offsetof(s.done) + unsafe.Sizeof(s.done)); gap < cacheLine {
		t.Errorf("the first shard lies %d bytes after what all requests read, want %d", gap, cacheLine)
	}
	if gap := unsafe.Sizeof(sh) - (unsafe.Offsetof(sh.limits) + unsafe.Sizeof(sh.limits)); gap < cacheLine {
		t.Errorf("shards lie %d bytes apart, want %d", gap, cacheLine)
	}
}
