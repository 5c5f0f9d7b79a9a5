package order

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// took is a request of a test.
type took struct{ start, end int64 }

// drain returns what a queue hands out for requests in the order of a log.
func drain(q *Queue[took], requests []took) (times []int64, values []took) {
	next := func() {
		for at, v, ok := q.Next(); ok; at, v, ok = q.Next() {
			times, values = append(times, at), append(values, v)
		}
	}
	for _, r := range requests {
		q.Add(r.start, r.end, r)
		next()
	}
	q.Close()
	next()
	return times, values
}

func TestOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		requests := make([]took, r.IntN(500))
		for i := range requests {
			start := r.Int64N(300) // in whole seconds: many come at the same time
			requests[i] = took{start * int64(time.Second), (start + r.Int64N(60)) * int64(time.Second)}
		}
		byEnd := func(a, b took) int { return cmp.Compare(a.end, b.end) }
		slices.SortStableFunc(requests, byEnd)
		want := slices.Clone(requests)
		slices.SortStableFunc(want, func(a, b took) int { return cmp.Compare(a.start, b.start) })
		q := New[took](time.Minute, 0)
		times, got := drain(q, requests)
		if !slices.Equal(got, want) || !slices.IsSorted(times) {
			t.Fatalf("seed %d: not in the order of their start", seed)
		}
		if n, _ := q.Late(); n != 0 {
			t.Fatalf("seed %d: %d late", seed, n)
		}
	}
}

func TestLate(t *testing.T) {
	s := int64(time.Second)
	requests := []took{{100 * s, 100 * s}, {200 * s, 200 * s}, {201 * s, 201 * s}, {50 * s, 202 * s}, {199 * s, 203 * s}, {141 * s, 203 * s}}
	q := New[took](time.Minute, 0)
	times, _ := drain(q, requests)
	if want := []int64{100 * s, 100 * s, 141 * s, 199 * s, 200 * s, 201 * s}; !slices.Equal(times, want) {
		t.Error(times)
	}
	if n, by := q.Late(); n != 1 || by != 50*time.Second {
		t.Error("late", n, by)
	}
}

// TestMost sees that a queue that is full hands out the earliest request before its time.
func TestMost(t *testing.T) {
	q := New[took](time.Hour, 3)
	for i := range int64(10) {
		q.Add(i, i, took{})
		_, _, ok := q.Next()
		if full := i >= 3; ok != full {
			t.Errorf("%d: handed out %v", i, ok)
		}
	}
}
