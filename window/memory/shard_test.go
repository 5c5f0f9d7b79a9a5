package memory

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestKeysAreKeptApart takes keys that are alike, each once.
func TestKeysAreKeptApart(t *testing.T) {
	s, _ := newStore(t, 1000)
	long := strings.Repeat("k", 24)
	sum := sha256.Sum256([]byte(long))
	for i, c := range []window.Charge{
		charge("zone", "", 1, time.Hour),
		charge("zone", "\x00", 1, time.Hour),
		charge("zone", "k", 1, time.Hour),
		charge("zone", "k\x00", 1, time.Hour),
		charge("zone", long[:22], 1, time.Hour),
		charge("zone", long[:23], 1, time.Hour),
		charge("zone", long, 1, time.Hour),
		charge("zone", long+"k", 1, time.Hour),
		charge("zone", string(sum[:23]), 1, time.Hour),
		charge("zone", string(sum[:]), 1, time.Hour),
		charge("zon", "ek", 1, time.Hour),
		charge("zonek", "", 1, time.Hour),
		charge("k", "zone", 1, time.Hour),
		{Zone: "zone", Key: "k", Cost: 1, Algorithm: window.GCRA{}, Policies: []window.Policy{{Limit: 1, Window: time.Hour}}},
	} {
		if d := take(t, s, c)[0]; !d.Allowed {
			t.Errorf("%d: %q of %q has the counter of another key", i, c.Key, c.Zone)
		}
		if d := take(t, s, c)[0]; d.Allowed {
			t.Errorf("%d: %q of %q is not found again", i, c.Key, c.Zone)
		}
	}
}

// TestShardIsBookkeeping adds and drops keys at random, of which histories grow and
// shrink, and looks for all of them.
func TestShardIsBookkeeping(t *testing.T) {
	sh := &shard{limits: new(limits)}
	sh.limits.maxKeys.Store(math.MaxInt64)
	names := make([]name, 5000)
	for i := range names {
		k := i / 2 // two zones for each key
		names[i] = name{zone: zoneName{"zset", strconv.Itoa(i % 2)}, hash: uint32(k/3) * 0x9e3779b9}
		names[i].key.set(strconv.Itoa(k))
	}
	here := make(map[int]bool)
	size := make(map[int]int) // of their histories
	history := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, size[i]) }
	r := rand.New(rand.NewPCG(1, 2))
	for step := range 60_000 {
		// The shard fills up, empties and fills up again.
		grow := step/15_000%2 == 0
		i := r.IntN(len(names))
		at := sh.find(&names[i], false)
		if (at != none) != here[i] {
			t.Fatalf("step %d: key %d: got slot %d, want it to be there: %t", step, i, at, here[i])
		}
		if got, want := sh.history(at), history(i); !bytes.Equal(got, want) {
			t.Fatalf("step %d: key %d has the history %v, want %v", step, i, got, want)
		}
		switch {
		case at == none && (grow || r.IntN(20) == 0):
			at = sh.insert(0, &names[i], false)
			sh.slot(at).busy = false
			here[i] = true
		case at != none && (!grow || r.IntN(20) == 0):
			sh.drop(at)
			delete(here, i)
			delete(size, i)
			at = none
		}
		if at != none {
			size[i] = r.IntN(1 + r.IntN(4*smallSize))
			sh.write(at, append(sh.history(at)[:0], history(i)...))
		}
		for k := range sh.larges {
			if step%1000 == 0 && sh.slot(sh.larges[k].slot).large != int32(k) {
				t.Fatalf("step %d: large history %d is not that of its slot", step, k)
			}
		}
		if int(sh.len) != len(here) || int(sh.limits.keys.Load()) != len(here) {
			t.Fatalf("step %d: %d keys, %d counted, want %d", step, sh.len, sh.limits.keys.Load(), len(here))
		}
		if n := len(sh.index.buckets); n < len(here) || n > 3*len(here)+4 || len(sh.index.links) != len(here) {
			t.Fatalf("step %d: %d buckets and %d links for %d keys", step, n, len(sh.index.links), len(here))
		}
	}
	if n := len(slotsOf(sh)); n != len(here) {
		t.Errorf("%d slots for %d keys", n, len(here))
	}
	for i := range names {
		if at := sh.find(&names[i], false); at != none {
			sh.drop(at)
		}
	}
	if fmt.Sprint(len(sh.zones.ids), sh.len, len(sh.zones.free)) != "0 0 2" || cap(sh.chunks[0]) > 16 || cap(sh.index.buckets) > 64 || cap(sh.index.links) > 16 || cap(sh.larges) > 16 {
		t.Errorf("at the end: zones %v, %d keys, room for %d slots, %d buckets, %d links and %d large histories", sh.zones, sh.len, cap(sh.chunks[0]), cap(sh.index.buckets), cap(sh.index.links), cap(sh.larges))
	}
}

// TestSweepStepByStep has a shard with much to sweep. Whoever waits for its lock
// waits for a part of it.
func TestSweepStepByStep(t *testing.T) {
	s, now := newStore(t, 1_000_000)
	for i := range 3 * sweepChunk * shardCount {
		take(t, s, charge("zone", strconv.Itoa(i), 10, time.Minute))
	}
	now.Add(time.Minute.Milliseconds())
	sh := &s.shards[0]
	steps := 0
	for rest := int32(math.MaxInt32); rest > 0; steps++ {
		had := sh.len
		rest = sh.sweep(now.Load(), rest)
		if had-sh.len > sweepChunk {
			t.Fatalf("step %d sweeps %d keys, want %d at most", steps, had-sh.len, sweepChunk)
		}
	}
	if sh.len > 0 || steps < 2 {
		t.Errorf("%d keys are left after %d steps", sh.len, steps)
	}
}
