// Package order puts requests in the order in which they came. A log has them in the order in which they ended.
package order

import (
	"math"
	"time"
)

// Queue holds requests back until none that came earlier is expected. It is a binary heap.
//
//	q := order.New[T](time.Minute, 0)
//	for … {
//		q.Add(start, end, v)
//		for at, v, ok := q.Next(); ok; at, v, ok = q.Next() { … }
//	}
//	q.Close()
//	for at, v, ok := q.Next(); ok; at, v, ok = q.Next() { … }
type Queue[T any] struct {
	horizon int64
	most    int
	items   []item // the heap
	values  []T    // by item.slot
	free    []uint32
	added   uint64
	ended   int64 // the latest end that was added
	out     int64 // the latest start that was handed out
	closed  bool
	late    int64
	latest  int64
}

// item is a request, and its place among those that came at the same time.
type item struct {
	start int64
	n     uint64
	slot  uint32
}

// DefaultMost is how many requests a Queue holds by default.
const DefaultMost = 1 << 20

// New returns a Queue that puts requests in order which took up to horizon. It holds at most `most` requests, which
// bounds its memory; 0: DefaultMost.
func New[T any](horizon time.Duration, most int) *Queue[T] {
	if most <= 0 {
		most = DefaultMost
	}
	return &Queue[T]{horizon: int64(horizon), most: most, ended: math.MinInt64, out: math.MinInt64}
}

// Add adds a request by its start and end, in nanoseconds.
func (q *Queue[T]) Add(start, end int64, v T) {
	q.ended = max(q.ended, end)
	if start < q.out {
		q.late++
		q.latest = max(q.latest, q.out-start)
	}
	slot := uint32(len(q.values)) // #nosec G115 -- at most `most`
	if n := len(q.free); n > 0 {
		slot, q.free = q.free[n-1], q.free[:n-1]
		q.values[slot] = v
	} else {
		q.values = append(q.values, v)
	}
	q.items = append(q.items, item{start, q.added, slot})
	q.added++
	q.up(len(q.items) - 1)
}

// Close says that no request follows. Next then returns all that are left.
func (q *Queue[T]) Close() { q.closed = true }

// Next returns the earliest request, if none that is added later can have come before it. A late request, which is added
// after others that came later, is moved to the time of the last of these: times never step back.
func (q *Queue[T]) Next() (at int64, v T, ok bool) {
	if len(q.items) == 0 || (!q.closed && len(q.items) <= q.most && q.items[0].start > q.ended-q.horizon) {
		return 0, v, false
	}
	first := q.items[0]
	last := len(q.items) - 1
	q.items[0] = q.items[last]
	q.items = q.items[:last]
	q.down(0)
	q.out = max(q.out, first.start)
	var empty T
	v, q.values[first.slot] = q.values[first.slot], empty
	q.free = append(q.free, first.slot)
	return q.out, v, true
}

// Late returns how many requests were late, and by how much the latest was.
func (q *Queue[T]) Late() (requests int64, by time.Duration) { return q.late, time.Duration(q.latest) }

// less reports whether items[i] comes before items[j].
func (q *Queue[T]) less(i, j int) bool {
	a, b := &q.items[i], &q.items[j]
	return a.start < b.start || (a.start == b.start && a.n < b.n)
}

// up moves items[i] to its place.
func (q *Queue[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			return
		}
		q.items[i], q.items[parent] = q.items[parent], q.items[i]
		i = parent
	}
}

// down moves items[i] to its place.
func (q *Queue[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(q.items) {
			return
		}
		if child+1 < len(q.items) && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			return
		}
		q.items[i], q.items[child] = q.items[child], q.items[i]
		i = child
	}
}
