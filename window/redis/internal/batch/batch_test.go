package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const timeout = 100 * time.Millisecond

var (
	errFull   = errors.New("no room to wait")
	errUnsent = errors.New("not sent")
	errSent   = errors.New("sent, and not answered")
)

// server is what batches are sent to. It answers when it is told to, on a virtual clock.
type server struct {
	t *testing.T
	*Batcher
	trip    time.Duration
	left    time.Duration // until the deadline of each batch
	callers sync.WaitGroup

	mu      sync.Mutex // guards batches
	batches []*sent    // that are not answered
}

// sent is a batch that the server has.
type sent struct {
	keys   []string
	answer chan struct{}
}

// newServer has to be called in a bubble of synctest.
func newServer(t *testing.T, change ...func(*Env)) *server {
	s := &server{t: t, left: timeout}
	env := Env{
		Timeout: timeout, MaxInFlight: 8,
		RTT:      func() time.Duration { return s.trip },
		Distance: func() time.Duration { return s.trip },
		Weight:   func(charges []window.Charge) int64 { return charges[0].Cost },
		Decider:  s.decider,
		Fail: func(_ context.Context, err error, sent bool) error {
			if sent {
				return errors.Join(errSent, err)
			}
			return errors.Join(errUnsent, err)
		},
		Busy: errFull,
	}
	for _, c := range change {
		c(&env)
	}
	s.Batcher = New(env)
	return s
}

// decider denies a request for "denied", fails one for "fails", and allows the others: the number
// that remains is its key. It reuses the memory of its results, as a store does.
func (s *server) decider() func(context.Context, [][]window.Charge) []window.Result {
	var results []window.Result
	var decisions []window.Decision
	return func(ctx context.Context, requests [][]window.Charge) []window.Result {
		own := &sent{answer: make(chan struct{})}
		if end, ok := ctx.Deadline(); !ok || time.Until(end) != s.left {
			s.t.Errorf("a batch has %s until its deadline, want %s", time.Until(end), s.left)
		}
		for _, charges := range requests {
			own.keys = append(own.keys, charges[0].Key)
		}
		s.mu.Lock()
		s.batches = append(s.batches, own)
		s.mu.Unlock()
		clear(decisions)
		results, decisions = results[:0], decisions[:0]
		select {
		case <-own.answer:
		case <-ctx.Done():
			for range requests {
				results = append(results, window.Result{Err: ctx.Err()})
			}
			return results
		}
		decisions = slices.Grow(decisions, len(requests))
		for _, key := range own.keys {
			if key == "fails" {
				results = append(results, window.Result{Err: errors.New("WRONGTYPE")})
				continue
			}
			n, err := strconv.ParseInt(key, 10, 64)
			decisions = append(decisions, window.Decision{Allowed: err == nil, Remaining: n})
			results = append(results, window.Result{Decisions: decisions[len(decisions)-1:]})
		}
		return results
	}
}

// one is a request.
func one(key string) []window.Charge {
	return []window.Charge{{Zone: "zone", Key: key, Cost: 1, Policies: []window.Policy{{Limit: 1, Window: time.Hour}}}}
}

// take makes a request whose result is not read.
func (s *server) take(ctx context.Context, n int) {
	for i := range n {
		s.callers.Go(func() { s.Take(ctx, one(strconv.Itoa(i)), nil) })
	}
	synctest.Wait()
}

// want checks the sizes of the batches that the server has, and how many requests wait.
func (s *server) want(what string, waiting int, sizes ...int) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []int
	for _, b := range s.batches {
		got = append(got, len(b.keys))
	}
	if _, wait := s.Load(); wait != waiting || !slices.Equal(got, sizes) {
		s.t.Fatalf("%s: %d wait, batches of %d are in flight; want %d, and %d", what, wait, got, waiting, sizes)
	}
}

// answer answers one of the batches that the server has.
func (s *server) answer(i int) {
	s.mu.Lock()
	own := s.batches[i]
	s.batches = slices.Delete(s.batches, i, i+1)
	s.mu.Unlock()
	close(own.answer)
	synctest.Wait()
}

// end answers all, and waits for all callers.
func (s *server) end() {
	s.t.Helper()
	synctest.Wait()
	for len(s.batches) > 0 {
		s.answer(0)
	}
	s.callers.Wait()
	s.want("in the end", 0)
	if n, _ := s.Load(); n != 0 {
		s.t.Errorf("%d goroutines in the end", n)
	}
}

// TestSolo holds that a request is sent by its caller if nothing is in flight, and that the next
// one is then sent by itself, too.
func TestSolo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		for range 3 {
			s.take(t.Context(), 1)
			s.want("one", 0, 1)
			s.answer(0)
			s.want("answered", 0)
			if len(s.idle) != 1 {
				t.Errorf("%d batches are kept, want the one that is reused", len(s.idle))
			}
			time.Sleep(timeout / 3)
		}
		s.end()
	})
}

// TestSoloAllocatesNothing holds that a caller who sends a request, and has room, needs no memory.
func TestSoloAllocatesNothing(t *testing.T) {
	results := []window.Result{{Decisions: make([]window.Decision, 1)}}
	b := New(Env{
		Timeout:  time.Minute,
		RTT:      func() time.Duration { return 0 },
		Distance: func() time.Duration { return 0 },
		Decider: func() func(context.Context, [][]window.Charge) []window.Result {
			return func(context.Context, [][]window.Charge) []window.Result { return results }
		},
	})
	charges, room := one("1"), make([]window.Decision, 1)
	if n := testing.AllocsPerRun(100, func() { b.Take(t.Context(), charges, room) }); n != 0 {
		t.Errorf("%v allocations per request, want 0", n)
	}
}

// TestFollow holds that requests wait for the batch in flight until there are enough.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.take(t.Context(), 1)
		s.take(t.Context(), minFollow-1)
		s.want("all but one", minFollow-1, 1)
		s.take(t.Context(), 1)
		s.want("enough", 0, 1, minFollow)
		s.take(t.Context(), 3*minFollow)
		s.want("two batches at once and no more", 3*minFollow, 1, minFollow)
		s.end()
	})
}

// TestFollowBetweenBatches holds that too few requests do not follow a batch that has come back, but
// whose goroutine has not looked for more yet.
func TestFollowBetweenBatches(t *testing.T) {
	b := New(Env{})
	b.runners, b.waiting = 1, make([]*waiter, minFollow-1)
	if b.mayFollow(0) {
		t.Errorf("%d requests may follow", len(b.waiting))
	}
	b.waiting = append(b.waiting, nil)
	if !b.mayFollow(0) {
		t.Errorf("%d requests may not follow", len(b.waiting))
	}
}

// TestFollowOnReturn holds that requests that wait are sent when the batch in flight returns.
func TestFollowOnReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.take(t.Context(), 1)
		s.take(t.Context(), 3)
		s.want("before", 3, 1)
		s.answer(0)
		s.want("after", 0, 3)
		s.end()
	})
}

// A second batch takes along the requests of goroutines that are ready to run, not only those that were
// queued when it was due. Go's scheduler now and then prefers the batch, so that there are some tries.
func TestReadyJoin(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const tries, n = 20, 2*minFollow - 2 // too few for two batches
	joined := 0
	for range tries {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			s.take(t.Context(), 1)
			s.take(t.Context(), n)
			s.mu.Lock()
			if len(s.batches[1].keys) == n {
				joined++
			}
			s.mu.Unlock()
			s.end()
		})
	}
	if joined < tries/2 {
		t.Errorf("%d of %d batches have all requests that were ready, want half of them at least", joined, tries)
	}
}

// TestStuck holds that no request waits for a batch that was in flight for too long.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.take(t.Context(), 1)
		time.Sleep(stuckAfter)
		s.take(t.Context(), 1)
		s.want("in time", 1, 1)
		time.Sleep(time.Nanosecond)
		s.take(t.Context(), 1)
		s.want("late", 0, 1, 2)
		time.Sleep(2 * stuckAfter)
		s.take(t.Context(), 1)
		s.want("both are late", 1, 1, 2)
		s.end()
	})
}

// TestAlike holds the size of the next batch, when a batch is in flight and enough wait: no
// smaller than that batch, and at most half of all, as long as the rest is enough for another.
func TestAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = minFollow
		s := newServer(t)
		s.take(t.Context(), 1)
		s.take(t.Context(), n)
		s.take(t.Context(), 3*n)
		s.want("a first one", 3*n, 1, n)
		s.answer(0)
		s.want("half of 4", n, n, 2*n)
		s.answer(0)
		s.want("fewer than are in flight", n, 2*n)
		s.take(t.Context(), n)
		s.want("enough, as that batch has", 0, 2*n, 2*n)

		gone, cancel := context.WithCancel(t.Context())
		s.take(gone, 4*n)
		s.want("full", 4*n, 2*n, 2*n)
		cancel()
		s.take(t.Context(), n)
		s.want("some have gone", 5*n, 2*n, 2*n)
		s.answer(0)
		s.want("whoever has gone takes no place", 0, 2*n, n)
		s.end()
	})
}

// TestWeight holds that a batch is bounded by how long the server works on it.
func TestWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		weigh := func(weights ...int64) {
			for _, w := range weights {
				c := one("1")
				c[0].Cost = w
				s.callers.Go(func() { s.Take(t.Context(), c, nil) })
				synctest.Wait()
			}
		}
		s.take(t.Context(), 1)
		weigh(MaxWeight-2, 1, 1, 1, MaxWeight+1, 1)
		s.want("all wait", 6, 1)
		s.answer(0)
		s.want("three fit", 3, 3)
		s.answer(0)
		s.want("the next does not", 2, 1)
		s.answer(0)
		s.want("one that is too heavy goes alone", 1, 1)
		s.answer(0)
		s.want("the last", 0, 1)
		s.end()
	})
}

// TestResults holds that each caller gets a result of its own, and keeps it when the batch is used
// again.
func TestResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		for range 2 {
			results := make([]window.Result, 20)
			rooms := make([]window.Decision, len(results))
			s.take(t.Context(), 1)
			for i := range results {
				key := strconv.Itoa(i)
				switch i {
				case 5:
					key = "fails"
				case 6:
					key = "denied"
				}
				s.callers.Go(func() { results[i] = s.Take(t.Context(), one(key), rooms[i:i+1:i+1]) })
			}
			s.end()
			s.take(t.Context(), len(results)) // in the same memory
			s.end()
			for i, r := range results {
				switch {
				case i == 5:
					if r.Err == nil || r.Decisions != nil {
						t.Errorf("request 5: %+v, want an error", r)
					}
				case r.Err != nil || len(r.Decisions) != 1 || &r.Decisions[0] != &rooms[i]:
					t.Errorf("request %d: %+v, want one decision in its room", i, r)
				case i == 6 && r.Decisions[0].Allowed, i != 6 && r.Decisions[0] != (window.Decision{Allowed: true, Remaining: int64(i)}):
					t.Errorf("request %d: %+v is another's", i, r)
				}
			}
		}
	})
}

// TestCancelled makes callers go: what waits is not sent, and what was sent may be charged. What they
// had room for is not written to once they have gone. A caller who sends a request notices it later.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		errs, ended := make([]error, 1+minFollow+3), make([]bool, 1+minFollow+3)
		rooms := make([]window.Decision, len(errs))
		for i := range errs {
			s.callers.Go(func() {
				errs[i] = s.Take(ctx, one(strconv.Itoa(100+i)), rooms[i:i+1]).Err
				ended[i] = true
			})
			synctest.Wait()
		}
		s.want("before", 3, 1, minFollow)
		cancel()
		synctest.Wait()
		for i, err := range errs {
			want := errSent
			if i > minFollow {
				want = errUnsent
			}
			switch {
			case i == 0 && ended[0]:
				t.Error("the caller who has sent a request has gone before its answer")
			case i > 0 && (!errors.Is(err, want) || !errors.Is(err, context.Canceled)):
				t.Errorf("request %d: %v; want %v, and Canceled", i, err, want)
			}
		}
		if r := s.Take(ctx, one("1"), nil); !errors.Is(r.Err, errUnsent) {
			t.Errorf("a caller who has gone before gets %+v, want %v", r, errUnsent)
		}
		clear(rooms)
		s.answer(1)
		s.answer(0)
		if errs[0] != nil || !ended[0] {
			t.Errorf("the caller who has sent a request got %v, want the answer", errs[0])
		}
		if slices.ContainsFunc(rooms[1:], func(d window.Decision) bool { return d != window.Decision{} }) {
			t.Errorf("%+v: the room of a caller who has gone is written to", rooms)
		}
		s.end()
	})
}

// TestGoneBefore makes a caller come who has gone already, while nothing is in flight: a batch of his
// own could be sent before he is seen to have gone.
func TestGoneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 1_000 {
			if r := s.Take(gone, one("1"), nil); !errors.Is(r.Err, errUnsent) || !errors.Is(r.Err, context.Canceled) {
				t.Fatalf("a caller who has gone before gets %+v, want %v and Canceled", r, errUnsent)
			}
			s.want("after it", 0)
		}
		s.end()
	})
}

// TestDeadlines has a server hang: each waits for the timeout and no longer, whenever it came.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		for i := range 40 {
			s.callers.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				for range 5 {
					start := time.Now()
					err := s.Take(t.Context(), one(strconv.Itoa(i)), nil).Err
					if took := time.Since(start); took != timeout || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Take = %v after %s, want DeadlineExceeded after %s", err, took, timeout)
					}
				}
			})
		}
		s.callers.Wait()
		synctest.Wait()
		time.Sleep(timeout)
		if n, waiting := s.Load(); n != 0 || waiting != 0 {
			t.Errorf("%d goroutines and %d waiters in the end", n, waiting)
		}
	})
}

// TestDeadlinesAgain makes requests wait until their time is up, again after nothing was left to wait
// for.
func TestDeadlinesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		for range 2 {
			s.take(t.Context(), 1)
			time.Sleep(2 * stuckAfter)
			s.take(t.Context(), 1)
			time.Sleep(2 * stuckAfter)
			start := time.Now()
			err := s.Take(t.Context(), one("1"), nil).Err
			if took := time.Since(start); took != timeout || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Take = %v after %s, want DeadlineExceeded after %s", err, took, timeout)
			}
			s.callers.Wait()
			time.Sleep(2 * timeout)
		}
	})
}

// TestSoloDeadline ends the context of a caller who sends a request first.
func TestSoloDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.left = time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), s.left)
		defer cancel()
		start := time.Now()
		r := s.Take(ctx, one("1"), nil)
		if took := time.Since(start); took != time.Millisecond || !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Errorf("Take = %+v after %s, want DeadlineExceeded after 1ms", r, took)
		}
	})
}

// TestQueueIsBounded makes more requests wait than there is room for: the others get an error at once.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.take(t.Context(), 1)
		s.take(t.Context(), minFollow)
		ctx, cancel := context.WithCancel(t.Context())
		s.take(ctx, QueueLength)
		s.want("the queue is full", QueueLength, 1, minFollow)
		if r := s.Take(ctx, one("1"), nil); !errors.Is(r.Err, errFull) {
			t.Errorf("Take = %+v, want %v", r, errFull)
		}
		cancel()
		synctest.Wait()
		s.answer(0)
		s.answer(0)
		if r, n := s.Load(); n != 0 || r != 0 {
			t.Errorf("%d wait and %d goroutines are left, want 0", n, r)
		}
		s.end()
	})
}

// TestFar has a server that is far away: batches are sent at even intervals, each without waiting
// for one to come back, and not more than there are connections.
func TestFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, trip = 4, 40 * time.Millisecond
		s := newServer(t, func(e *Env) { e.MaxInFlight = most })
		s.trip = trip
		s.take(t.Context(), 1)
		s.take(t.Context(), 1)
		s.want("too early", 1, 1)
		time.Sleep(trip/most - 1)
		s.want("still too early", 1, 1)
		time.Sleep(time.Nanosecond)
		s.want("an interval later", 0, 1, 1)
		s.take(t.Context(), 2)
		s.want("the next one waits, too", 2, 1, 1)
		time.Sleep(trip / most)
		s.want("two intervals later", 0, 1, 1, 2)
		time.Sleep(trip / most)
		s.take(t.Context(), 1)
		s.want("nothing waits in between", 0, 1, 1, 2, 1)
		time.Sleep(trip / most)
		s.take(t.Context(), 1)
		s.want("all connections are in use", 1, 1, 1, 2, 1)
		s.answer(0)
		s.want("one is free", 0, 1, 2, 1, 1)
		s.end()
	})
}

// TestDistance holds how long requests take, and how many batches, by how far away the server is. They
// come at a fixed rate, and the server answers after a round trip.
func TestDistance(t *testing.T) {
	for _, test := range []struct {
		trip    time.Duration
		rate    int
		median  time.Duration // at most
		batches int           // at most, of the requests of a second
	}{
		{time.Millisecond, 1_000, 2 * time.Millisecond, 1_000},
		{2 * time.Millisecond, 4_000, 3500 * time.Microsecond, 1_000}, // near: few batches
		{5 * time.Millisecond, 1_000, 5300 * time.Microsecond, 1_000},
		{5 * time.Millisecond, 4_000, 5300 * time.Microsecond, 4_010},
		{5 * time.Millisecond, 20_000, 5300 * time.Microsecond, 4_010},  // at most one per interval
		{20 * time.Millisecond, 4_000, 20600 * time.Microsecond, 1_010}, // each connection has one in flight
	} {
		t.Run(fmt.Sprintf("%s,%d", test.trip, test.rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var batches atomic.Int64
				s := newServer(t, func(e *Env) {
					e.MaxInFlight = 20
					e.Decider = func() func(context.Context, [][]window.Charge) []window.Result {
						return func(_ context.Context, requests [][]window.Charge) []window.Result {
							batches.Add(1)
							time.Sleep(test.trip)
							return make([]window.Result, len(requests))
						}
					}
				})
				s.trip = test.trip
				times := make([]time.Duration, test.rate)
				for i := range times {
					s.callers.Go(func() {
						began := time.Now()
						s.Take(t.Context(), one("1"), nil)
						times[i] = time.Since(began)
					})
					time.Sleep(time.Second / time.Duration(test.rate))
				}
				s.callers.Wait()
				slices.Sort(times)
				if got := times[len(times)/2]; got > test.median {
					t.Errorf("half of all requests take more than %s, want %s at most", got, test.median)
				}
				if n := int(batches.Load()); n > test.batches {
					t.Errorf("%d batches, want %d at most", n, test.batches)
				}
				t.Logf("median %s, %d batches", times[len(times)/2], batches.Load())
			})
		})
	}
}

// TestFarOverdue makes a server that is far away stop answering: two batches are all that is sent
// then.
func TestFarOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 20 * time.Millisecond
		s := newServer(t)
		s.trip = trip
		for range 3 {
			s.take(t.Context(), 1)
			time.Sleep(trip)
		}
		s.want("the first one is overdue now, and was not yet", 0, 1, 1, 1)
		s.take(t.Context(), 1)
		s.want("overdue", 1, 1, 1, 1)
		s.end()
	})
}

// TestGiveUp holds that the store hears of what became of a request whose caller has gone while it was in flight, and of no
// other.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone []string
		s := newServer(t, func(env *Env) {
			env.GiveUp = func(charges []window.Charge, r window.Result) {
				gone = append(gone, fmt.Sprintf("%s %v %v", charges[0].Key, r.Err == nil && window.Allowed(r.Decisions), r.Err))
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		take := func(ctx context.Context, key string) {
			s.callers.Go(func() { s.Take(ctx, one(key), nil) })
			synctest.Wait()
		}
		take(t.Context(), "1")
		time.Sleep(stuckAfter + time.Millisecond) // so that the next ones go in a batch of their own
		for _, key := range []string{"2", "denied", "fails", "3"} {
			take(map[bool]context.Context{true: t.Context(), false: ctx}[key == "3"], key)
		}
		s.want("a solo request, and a batch", 3, 1, 1)
		s.answer(0)
		time.Sleep(stuckAfter + time.Millisecond)
		take(t.Context(), "4")
		s.want("all in flight", 0, 1, 4)
		cancel()
		synctest.Wait()
		if len(gone) > 0 {
			t.Errorf("told %q before there was an answer", gone)
		}
		s.answer(0)
		s.answer(0)
		s.end()
		if want := []string{"2 true <nil>", "denied false <nil>", "fails false WRONGTYPE"}; !slices.Equal(gone, want) {
			t.Errorf("told %q, want %q", gone, want)
		}
	})
}
