package memory

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// TestFloodOfKeys charges 5,000,000 keys (500,000 with the race detector) where
// 100,000 have room, while one that is denied goes on asking: memory stays what it was
// once the store was full, and so does the denial.
func TestFloodOfKeys(t *testing.T) {
	const maxKeys = 100_000
	keys := 5_000_000
	if raced {
		keys = 500_000
	}
	s := New(Options{MaxKeys: maxKeys})
	defer func() { _ = s.Close() }()
	abuser := charge("zone", "abuser", 3, time.Hour)
	for range 3 {
		take(t, s, abuser)
	}
	var steady, most memoryUse
	began := time.Now()
	for i := range keys {
		take(t, s, charge("zone", strconv.Itoa(i), 100, time.Hour))
		if i%1000 == 0 && take(t, s, abuser)[0].Allowed {
			t.Fatalf("after %d keys a request passes that has to be denied", i)
		}
		switch {
		case i == 2*maxKeys:
			steady = measureMemory()
		case i > 2*maxKeys && i%(keys/20) == 0:
			most = most.and(measureMemory())
		}
	}
	most = most.and(measureMemory())
	t.Logf("%d keys in %s; heap %d KB, then %d KB at most; resident %d KB, then %d KB at most",
		keys, time.Since(began).Round(time.Millisecond), steady.heap>>10, most.heap>>10, steady.resident>>10, most.resident>>10)
	if n := s.Keys(); n > maxKeys+shardCount {
		t.Errorf("%d keys are kept, want %d at most", n, maxKeys+shardCount)
	}
	if most.heap > steady.heap*13/10 || most.resident > steady.resident*13/10 {
		t.Errorf("memory has grown from %+v to %+v bytes, want 1.3 times at most", steady, most)
	}
	runtime.KeepAlive(s)
}

// memoryUse is what this process takes, in bytes.
type memoryUse struct{ heap, resident uint64 }

// measureMemory returns what is in use after a collection, and what is resident at
// that moment; 0 where the system does not tell.
func measureMemory() memoryUse {
	resident := residentBytes()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memoryUse{m.HeapAlloc, resident}
}

func residentBytes() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseUint(string(bytes.Fields(text)[1]), 10, 64)
	return pages * uint64(os.Getpagesize())
}

func (m memoryUse) and(o memoryUse) memoryUse {
	return memoryUse{max(m.heap, o.heap), max(m.resident, o.resident)}
}
