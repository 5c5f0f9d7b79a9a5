package bans

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
)

// Table keeps the bans of this process. It is safe for concurrent use: requests that are denied wait for its lock, once a
// second for each key.
type Table struct {
	now  func() int64
	most int // records

	mu      sync.Mutex // guards what follows
	records map[string]*kept
	ends    ends     // all records
	changes []change // the oldest first; those whose record has a newer one, or is gone, are void
	last    int64    // the number of the newest change
}

// kept is a record in a Table.
type kept struct {
	Record
	member string
	place  int // in ends
}

type change struct {
	number int64
	member string
}

// NewTable returns an empty table on a clock.
func NewTable(now func() int64) *Table {
	return &Table{now: now, most: MostRecords, records: make(map[string]*kept)}
}

// ExchangeBans implements Store. It returns no error.
func (t *Table) ExchangeBans(_ context.Context, ask Ask) (a Answer, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.Now = t.now()
	if w := t.records[ask.Witness]; ask.Known > 0 && (w == nil || w.Change < ask.Known) {
		a.Lost, ask.Known = true, 0
	}
	for i := range ask.Writes {
		a.Done = append(a.Done, t.write(&ask.Writes[i], a.Now))
	}
	if len(ask.Writes) > 0 {
		t.tidy(a.Now)
	}
	a.Change = ask.Known
	from, _ := slices.BinarySearchFunc(t.changes, ask.Known+1, func(c change, n int64) int { return cmp.Compare(c.number, n) })
	for _, c := range t.changes[from:] {
		r := t.records[c.member]
		if r == nil || r.Change != c.number {
			continue
		}
		if a.More = len(a.Changes) == MostChanges; a.More {
			break
		}
		copied := r.Record
		copied.Strikes = slices.Clone(r.Strikes)
		a.Changes, a.Change = append(a.Changes, Change{c.member, copied}), c.number
	}
	return a, nil
}

// All returns all records.
func (t *Table) All() []Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Change, len(t.ends))
	for i, r := range t.ends {
		all[i] = Change{r.member, r.Record}
		all[i].Record.Strikes = slices.Clone(r.Strikes)
	}
	return all
}

// write makes one write. It reports whether who is banned has changed, or until when.
func (t *Table) write(w *Write, now int64) (done bool) {
	r := t.records[w.Member]
	if former := t.records[w.Former]; r == nil && former != nil && w.Former != "" {
		t.drop(former)
		r = &kept{Record: former.Record, member: w.Member}
		heap.Push(&t.ends, r)
		t.records[w.Member] = r
		t.note(r)
	}
	isNew := r == nil
	if isNew {
		if w.Op == Lift {
			return false
		}
		r = &kept{Record: Record{About: w.About}, member: w.Member}
	}
	switch w.Op {
	case Strike:
		done = r.strike(now, w.Draw, &w.Rule)
	case Set:
		r.set(now, w.For, w.Keep)
		r.About, done = w.About, true
	case Lift:
		done = r.lift(now)
	case Merge:
		done = r.merge(&w.Record)
	}
	if isNew {
		t.records[w.Member] = r
		heap.Push(&t.ends, r)
	} else {
		heap.Fix(&t.ends, r.place)
	}
	if done {
		t.note(r)
	}
	return done
}

// note gives a record the next number of a change.
func (t *Table) note(r *kept) {
	t.last++
	r.Change = t.last
	if len(t.changes) >= 2*len(t.records)+MostChanges {
		t.changes = slices.DeleteFunc(t.changes, func(c change) bool {
			r := t.records[c.member]
			return r == nil || r.Change != c.number
		})
	}
	t.changes = append(t.changes, change{r.Change, r.member})
}

// tidy forgets what is of no use any more, and what is too much.
func (t *Table) tidy(now int64) {
	for n := 0; n < tidied && len(t.ends) > 0 && t.ends[0].Forget <= now; n++ {
		t.drop(t.ends[0])
	}
	for n := 0; n < tidied && len(t.ends) > t.most; n++ {
		t.drop(t.ends[0])
	}
}

func (t *Table) drop(r *kept) {
	heap.Remove(&t.ends, r.place)
	delete(t.records, r.member)
}

// ends is a heap of records, of which the first is the first to be forgotten. It is that of Redis: of two with one time,
// the first by its name.
type ends []*kept

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].Forget, e[j].Forget), cmp.Compare(e[i].member, e[j].member)) < 0
}

func (e ends) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].place, e[j].place = i, j
}

// Push implements heap.Interface.
func (e *ends) Push(r any) {
	r.(*kept).place = len(*e)
	*e = append(*e, r.(*kept))
}

// Pop implements heap.Interface.
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
