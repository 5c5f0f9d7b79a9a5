package series

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var windows = []time.Duration{time.Second, 10 * time.Second, time.Minute}

// trace returns the times of requests by key, in ns, and the same in the order of all.
type event struct {
	key string
	at  int64
}

func trace(r *rand.Rand) []event {
	at := 1_700_000_000_000_000_000 + r.Int64N(1e18)
	keys := 1 + r.IntN(20)
	events := make([]event, r.IntN(400))
	for i := range events {
		switch r.IntN(5) {
		case 0:
		case 1:
			at += r.Int64N(1e6)
		case 2:
			at += r.Int64N(1e9)
		case 3:
			at += 1e9 * r.Int64N(3)
		case 4:
			at += r.Int64N(20e9)
		}
		events[i] = event{fmt.Sprint("key ", r.IntN(keys)*r.IntN(2)), at}
	}
	return events
}

// brute returns the peaks of a key by counting in the window that begins with each request.
func brute(events []event, key string) (peaks []int, times []int64) {
	for _, e := range events {
		if e.key == key {
			times = append(times, e.at/1e6)
		}
	}
	for _, w := range windows {
		peak := 0
		for _, from := range times {
			n := 0
			for _, t := range times {
				if t >= from && t < from+w.Milliseconds() {
					n++
				}
			}
			peak = max(peak, n)
		}
		peaks = append(peaks, peak)
	}
	return peaks, times
}

func fill(t *testing.T, s *Set, events []event) {
	t.Helper()
	for _, e := range events {
		if err := s.Add(e.key, e.at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPeaks(t *testing.T) {
	for seed := range uint64(1000) {
		events := trace(rand.New(rand.NewPCG(seed, 1)))
		s := New(windows, 64<<20)
		fill(t, s, events)
		r, total := s.Reader(), 0
		for i := range s.Keys() {
			k := r.Key(i)
			peaks, times := brute(events, k.Name)
			if !slices.Equal(k.Peaks, peaks) || !slices.Equal(k.Times, times) || k.Requests != len(times) || k.Folded != 0 {
				t.Fatalf("seed %d: %s: peaks %v, want %v; %d times, want %d", seed, k.Name, k.Peaks, peaks, len(k.Times), len(times))
			}
			total += k.Requests
		}
		if total != len(events) || s.Requests() != int64(total) {
			t.Fatalf("seed %d: %d requests, want %d", seed, total, len(events))
		}
	}
}

// Bytes returns how much memory the Set takes.
func (s *Set) Bytes() int64 { return s.keyBytes() + int64(len(s.blocks.slabs))*slabSize }

// TestFoldTimes sees that peaks stay exact and memory bounded when times are folded.
func TestFoldTimes(t *testing.T) {
	const memory = 8 << 20
	r := rand.New(rand.NewPCG(1, 2))
	exact, bounded := New(windows, 1<<30), New(windows, memory)
	at := int64(1_700_000_000_000_000_000)
	for range 3_000_000 {
		at += r.Int64N(2e6)
		key := fmt.Sprint(r.IntN(1 + r.IntN(2000)))
		if r.IntN(10) == 0 {
			key = "busy"
		}
		for _, s := range []*Set{exact, bounded} {
			if err := s.Add(key, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	keys, requests, most := bounded.Folded()
	if keys == 0 || requests == 0 || bounded.Bytes() > memory+slabSize {
		t.Fatalf("%d keys folded, %d requests, %d bytes", keys, requests, bounded.Bytes())
	}
	a, b := exact.Reader(), bounded.Reader()
	folded := 0
	for i := range exact.Keys() {
		x, y := a.Key(i), b.Key(i)
		if x.Name != y.Name || !slices.Equal(x.Peaks, y.Peaks) || x.Requests != y.Requests || y.Folded+len(y.Times) != y.Requests {
			t.Fatalf("%s: %v, want %v", y.Name, y.Peaks, x.Peaks)
		}
		if !slices.Equal(x.Times[y.Folded:], y.Times) {
			t.Fatalf("%s: other times", y.Name)
		}
		if y.Folded == 0 {
			continue
		}
		folded++
		for j := range windows {
			if y.FoldedPeaks[j] > most[j] || y.FoldedPeaks[j] > y.Peaks[j] {
				t.Errorf("%s: folded with a peak of %d, above %d or %d", y.Name, y.FoldedPeaks[j], most[j], y.Peaks[j])
			}
		}
	}
	if folded != keys {
		t.Errorf("%d keys folded, said %d", folded, keys)
	}
	for i := range bounded.Keys() {
		if k := b.Key(i); k.Name == "busy" && k.Folded > 0 {
			t.Error("the busiest key was folded")
		}
	}
}

func TestMemory(t *testing.T) {
	s := New(windows, 4<<20)
	var err error
	for i := 0; err == nil && i < 1_000_000; i++ {
		err = s.Add(fmt.Sprint("a key of its own ", i), int64(i)*1e6)
	}
	if !errors.Is(err, ErrMemory) || s.Bytes() > 5<<20 {
		t.Errorf("%v; %d bytes of %d keys", err, s.Bytes(), s.Keys())
	}
}

func TestTable(t *testing.T) {
	table := newTable()
	for range 2 {
		for i := range 100_000 {
			e, isNew := table.find(fmt.Sprint(i * i))
			if e.n++; isNew != (e.n == 1) {
				t.Fatal(i, isNew)
			}
		}
	}
	if table.n != 100_000 {
		t.Error(table.n)
	}
}

func BenchmarkAdd(b *testing.B) {
	keys := make([]string, 1<<17)
	for i := range keys {
		keys[i] = fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	}
	s := New(windows, 2<<30)
	i := int64(0)
	for b.Loop() {
		if err := s.Add(keys[i*7919%(1<<17)], 1_700_000_000_000_000_000+i*1e5); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(s.Bytes())/float64(i), "B/request")
}
