package totals

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// Gap is the least time between two totals of a counter: what is given back in between goes in one.
	Gap = 50 * time.Millisecond
	// pace is the least time between two calls, so that totals of several counters go in one.
	pace = 5 * time.Millisecond
	// Beat is how often the table looks which totals are due. A server that has lost totals has them again a beat later:
	// what has changed in the last two beats is told, and some others are, so that the table hears of the loss.
	Beat = 500 * time.Millisecond
	// witnesses is how many totals are told at each beat, whether they are due or not.
	witnesses = 64
	// together is how many totals go in one round trip.
	together = 1024
	// spare is how many entries are kept until the server has counted that they hold nothing, however long it is away.
	spare = 1 << 16
)

// Env is what a Table needs of its store.
type Env struct {
	// Context ends with the store.
	Context context.Context
	// Now returns the time since any moment.
	Now func() time.Duration
	// Tell sends the totals of the counters of charges, by Table.Total, and returns for each the reply of the script,
	// which is negative if the total was not counted. It does not wait longer than a request would.
	Tell func(ctx context.Context, charges []window.Charge) []int64
	// Reclaimed is called with units of a zone that are free, as their process was silent. Nil: not called.
	Reclaimed func(zone string, units int64)
}

// Replies to a total that was not counted.
const (
	Stale  = -4 // of lua/concurrent.lua: a later message was counted before, and the next total will be
	unsent = -1
)

// teller tells the server, in a goroutine from the first message to Close.
type teller struct {
	wake   chan struct{} // holds one value if something is queued
	once   sync.Once
	stop   context.CancelFunc
	ctx    context.Context
	done   chan struct{} // closed when the goroutine has ended; nil without one
	mu     sync.Mutex    // guards what follows
	queue  []*entry
	closed bool
}

func (l *teller) init(ctx context.Context) {
	l.wake = make(chan struct{}, 1)
	l.ctx, l.stop = context.WithCancel(ctx)
}

// start starts the goroutine.
func (t *Table) start() {
	t.teller.once.Do(func() {
		t.teller.mu.Lock()
		defer t.teller.mu.Unlock()
		if !t.teller.closed {
			t.teller.done = make(chan struct{})
			go t.run()
		}
	})
}

// Close tells the server that nothing is held any more, once, and ends the goroutine. Later messages still can be had.
func (t *Table) Close() {
	t.teller.mu.Lock()
	t.teller.closed = true
	done := t.teller.done
	t.teller.mu.Unlock()
	t.teller.stop()
	if done == nil {
		return
	}
	<-done
	var all []*entry
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			e.back, e.onTheWay = e.given, 0
			all = append(all, e)
		}
		s.mu.Unlock()
	}
	t.tell(context.WithoutCancel(t.teller.ctx), all)
}

// queue makes the teller send the total of an entry. The lock of its shard is held.
func (t *Table) queue(e *entry) {
	if e.queued {
		return
	}
	e.queued = true
	t.teller.mu.Lock()
	t.teller.queue = append(t.teller.queue, e)
	t.teller.mu.Unlock()
	select {
	case t.teller.wake <- struct{}{}:
	default:
	}
}

// run tells the server until the table is closed.
func (t *Table) run() {
	defer close(t.teller.done)
	beat := time.NewTicker(Beat)
	defer beat.Stop()
	timer := time.NewTimer(time.Hour) // for what was told less than Gap ago
	defer timer.Stop()
	away := false // the server is asked at the next beat
	for {
		wake, again := t.teller.wake, timer.C
		if away {
			wake, again = nil, nil
		}
		var entries []*entry
		select {
		case <-t.teller.ctx.Done():
			return
		case <-beat.C:
			entries = t.due(false)
		case <-wake:
			entries = t.ready(timer.Reset)
		case <-again:
			entries = t.ready(timer.Reset)
		}
		if away = t.round(entries); !away && len(entries) > 0 {
			select {
			case <-time.After(pace):
			case <-t.teller.ctx.Done():
			}
		}
	}
}

// round tells the totals of entries, and all if the server has lost some. It reports whether the server is away.
func (t *Table) round(entries []*entry) (away bool) {
	away, lost := t.tell(t.teller.ctx, entries)
	if lost {
		away, _ = t.tell(t.teller.ctx, t.due(true))
	}
	return away
}

// ready takes the entries out of the queue that may be told. It calls again with the time until the next one may be.
func (t *Table) ready(again func(time.Duration) bool) (ready []*entry) {
	t.teller.mu.Lock()
	queue := t.teller.queue
	t.teller.queue = nil
	t.teller.mu.Unlock()
	now, wait := t.env.Now(), Gap
	var rest []*entry
	for _, e := range queue {
		s := t.shardOf(e)
		s.mu.Lock()
		if left := e.told + Gap - now; e.told > 0 && left > 0 {
			rest, wait = append(rest, e), min(wait, left)
		} else {
			ready, e.queued, e.missed = append(ready, e), false, true
		}
		s.mu.Unlock()
	}
	if rest != nil {
		t.teller.mu.Lock()
		t.teller.queue = append(t.teller.queue, rest...)
		t.teller.mu.Unlock()
		again(wait)
	}
	return ready
}

// due returns the entries that are to be told at a beat, or all that hold units. Where many hold none, as the server could
// not be told, it forgets them after a lease.
func (t *Table) due(all bool) (due []*entry) {
	now := t.env.Now()
	some, first := 0, rand.IntN(len(t.shards)) // so that every counter may be a witness
	for i := range t.shards {
		s := &t.shards[(first+i)%len(t.shards)]
		s.mu.Lock()
		for _, e := range s.entries {
			lease := e.charge.Policies[0].Window
			switch {
			case len(s.entries) > spare/len(t.shards) && e.held() == 0 && e.onTheWay == 0 && now-e.changed > lease:
				e.queued, e.missed = false, false
				t.settle(e)
				t.tidy(s, e)
			case e.held() == 0 && (e.onTheWay > 0 || e.queued):
			case all, e.missed, some < witnesses, now-e.changed < 2*Beat, now-e.told >= lease/3-Beat:
				due = append(due, e)
				some++
			}
		}
		s.mu.Unlock()
	}
	return due
}

// tell tells the totals of entries. It reports whether the server is away, and whether it has lost what it had counted.
func (t *Table) tell(ctx context.Context, all []*entry) (away, lost bool) {
	for part := range slices.Chunk(all, together) {
		if away {
			for _, e := range part {
				t.counted(e, unsent)
			}
			continue
		}
		charges := make([]window.Charge, len(part))
		for i, e := range part {
			s := t.shardOf(e)
			s.mu.Lock()
			charges[i] = e.charge
			e.telling, e.missed = telling{true, e.added, math.MaxInt64}, true
			s.mu.Unlock()
		}
		away = true
		for i, reply := range t.env.Tell(ctx, charges) {
			away = away && reply < 0 && reply != Stale
			lost = t.counted(part[i], reply) || lost
		}
	}
	return away, lost
}

// counted notes the reply to a total. It reports whether the server has lost what it had counted. A total without a reply
// is due at the next beat.
func (t *Table) counted(e *entry, reply int64) (lost bool) {
	s := t.shardOf(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.missed = reply < 0 && reply != Stale
	if reply == Stale {
		t.queue(e)
	}
	if reply < 0 {
		return false
	}
	e.added -= min(e.added, e.telling.added)
	e.heard = max(e.heard, e.telling.number)
	lost = reply%2 == 1 && e.held() > 0
	if e.telling.exact {
		t.settle(e)
	} else if lost { // and may have found what is not held any more
		t.isInDoubt(e)
		t.queue(e)
	}
	if free := reply / 2; free > 0 && t.env.Reclaimed != nil {
		t.env.Reclaimed(e.charge.Zone, free)
	}
	t.tidy(s, e)
	return lost
}

// settle ends the doubt on an entry. The lock of its shard is held.
func (t *Table) settle(e *entry) {
	if e.doubt != nil {
		close(e.doubt)
		e.doubt = nil
	}
}
