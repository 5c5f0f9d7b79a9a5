package window

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"
)

const logStart int64 = 1_800_000_000_000

func logPolicy(limit, ms int64) Policy {
	return Policy{Limit: limit, Window: time.Duration(ms) * time.Millisecond}
}

// take decides as a store does on a request of one charge.
func take(s State, now int64, c *Charge) []Decision {
	ds := make([]Decision, len(c.Policies))
	if s.Look(now, c, ds) && c.Cost > 0 {
		s.Spend(now, c, ds)
	} else {
		s.Explain(now, c, ds, true)
	}
	return ds
}

func peek(s State, now int64, c *Charge) []Decision {
	ds := make([]Decision, len(c.Policies))
	s.Look(now, c, ds)
	s.Explain(now, c, ds, false)
	return ds
}

// check holds the state against what the layout promises.
func (s *logState) check(t *testing.T) {
	t.Helper()
	at, total := int64(-1), int64(-1)
	for i, ch := range s.chunks {
		p := ch.part()
		if total >= 0 && p.before() != total {
			t.Fatalf("chunk %d begins at total %d, the one before it ends at %d", i, p.before(), total)
		}
		all := p.records()
		if p.oldest() != all[0].at {
			t.Fatalf("chunk %d begins at %d, its first record is %+v", i, p.oldest(), all[0])
		}
		total = p.before()
		for k, r := range all {
			if r.at <= at || r.units < 1 {
				t.Fatalf("chunk %d, record %d is %+v, after one at %d", i, k, r, at)
			}
			at, total = r.at, total+r.units
		}
		if total != p.upTo || total > MaxProduct || p.before() < 0 {
			t.Fatalf("chunk %d ends at total %d, and says %d", i, total, p.upTo)
		}
	}
}

// Any number of units from none to three chunks, at every edge of the window.
func TestLogChunks(t *testing.T) {
	for _, gap := range []int64{0, 1, 63, 64, 8_191, 8_192, 1 << 20, 1 << 27} {
		for _, units := range []int64{1, 2, 127, 128, 255, 256, 1 << 14, 1 << 40} {
			log, zset := new(logState), new(zsetState)
			longest := logPolicy(MaxProduct/(100*gap+1), 100*gap+1)
			if units > 100 && gap > 8_191 {
				continue // more than such a limit can be
			}
			for n := range int64(60) {
				now := logStart + n*gap
				c := &Charge{Policies: []Policy{longest}, Cost: min(units, longest.Limit/60)}
				if got, want := take(log, now, c), take(zset, now, c); !slices.Equal(got, want) {
					t.Fatalf("gap %d, units %d, unit %d: %+v, want %+v", gap, units, n, got, want)
				}
				log.check(t)
				for back := range n + 2 {
					c := &Charge{Policies: []Policy{
						logPolicy(1, back*gap+1), logPolicy(units, max(1, back*gap)), longest,
					}, Cost: 1}
					if got, want := peek(log, now, c), peek(zset, now, c); !slices.Equal(got, want) {
						t.Fatalf("gap %d, units %d, unit %d, window of %d: %+v, want %+v", gap, units, n, back, got, want)
					}
				}
			}
			if gap == 1 && units == 1 && len(log.chunks) != 2 {
				t.Errorf("%d chunks of 60 units, want 2", len(log.chunks))
			}
		}
	}
}

// TestLogSettle gives back at every record of a long log, the first and the last
// of each chunk among them.
func TestLogSettle(t *testing.T) {
	const n = 70
	for _, back := range []int64{1, 2, 3} {
		for at := logStart - 1; at <= logStart+n; at++ {
			log, zset := new(logState), new(zsetState)
			c := &Charge{Policies: []Policy{logPolicy(1_000, 10_000)}}
			for k := range int64(n) {
				for _, s := range []State{log, zset} {
					s.Settle(logStart+k, c, 0, 1+k%3)
				}
			}
			for _, s := range []State{log, zset} {
				s.Settle(logStart+n, c, at, -back)
				s.Settle(logStart+n, c, at, -back)
			}
			log.check(t)
			compareLogs(t, logStart+n, log, zset, n)
			// Down to nothing, from both ends.
			for k := range int64(n) {
				for _, s := range []State{log, zset} {
					s.Settle(logStart+n, c, logStart+k, -3)
					s.Settle(logStart+n, c, logStart+n-1-k, -3)
				}
				log.check(t)
			}
			if len(log.chunks) != 0 {
				t.Fatalf("%d chunks after all was given back", len(log.chunks))
			}
		}
	}
}

// compareLogs compares the states in every window of up to n ms.
func compareLogs(t *testing.T, now int64, log *logState, zset *zsetState, n int64) {
	t.Helper()
	for window := int64(1); window <= n+1; window++ {
		c := &Charge{Policies: []Policy{logPolicy(5, window), logPolicy(0, window), logPolicy(1_000, window)}, Cost: 3}
		if got, want := peek(log, now, c), peek(zset, now, c); !slices.Equal(got, want) {
			t.Fatalf("window of %d: %+v, want %+v", window, got, want)
		}
	}
}

// A log decides as zset does, field for field, as long as the clock does not step
// back and the longest window stays.
func TestLogEqualsZset(t *testing.T) {
	denials := 0
	for walk := range uint64(200) {
		r := rand.New(rand.NewPCG(1, walk))
		log, zset := new(logState), new(zsetState)
		scale := int64(1) << r.IntN(40)
		now, longest := logStart, 1+r.Int64N(5_000)
		var spent []int64
		for step := range 500 {
			now += r.Int64N(1 + r.Int64N(1+longest/8))
			c := &Charge{Policies: []Policy{logPolicy(r.Int64N(60)*scale, longest)}, Cost: r.Int64N(6) * (1 + r.Int64N(scale))}
			for range r.IntN(3) {
				c.Policies = append(c.Policies, logPolicy(r.Int64N(60)*scale, 1+r.Int64N(longest)))
			}
			if n := r.IntN(20); n == 0 {
				delta := 1 + r.Int64N(4)*scale
				log.Settle(now, c, 0, delta)
				zset.Settle(now, c, 0, delta)
				spent = append(spent, now)
			} else if n < 3 && len(spent) > 0 {
				at, delta := spent[r.IntN(len(spent))], -1-r.Int64N(4)*scale
				log.Settle(now, c, at, delta)
				zset.Settle(now, c, at, delta)
			}
			got, want := take(log, now, c), take(zset, now, c)
			if !slices.Equal(got, want) {
				t.Fatalf("walk %d, step %d at %d: take(%+v) = %+v, want %+v", walk, step, now, c, got, want)
			}
			if Allowed(got) {
				spent = append(spent, now)
			} else {
				denials++
			}
			log.check(t)
		}
	}
	t.Logf("%d denials", denials)
}

// Running totals start again before they are no longer exact.
func TestLogRebase(t *testing.T) {
	rebases := 0
	for walk := range uint64(100) {
		r := rand.New(rand.NewPCG(2, walk))
		log, zset := new(logState), new(zsetState)
		now, window := logStart, 1+r.Int64N(30)
		limit := MaxProduct / window
		for step := range 500 {
			now += r.Int64N(1 + window/4)
			c := &Charge{Policies: []Policy{logPolicy(limit, window)}, Cost: 1 + r.Int64N(limit)>>r.IntN(10)}
			total, gone := log.tail().upTo, log.count(now, c.Policies[0]) == 0
			if got, want := take(log, now, c), take(zset, now, c); !slices.Equal(got, want) {
				t.Fatalf("walk %d, step %d at %d: take(%+v) = %+v, want %+v", walk, step, now, c, got, want)
			}
			log.check(t)
			if log.tail().upTo < total && !gone {
				rebases++
			}
		}
	}
	if rebases < 100 {
		t.Errorf("%d rebases in 100 walks, want more", rebases)
	}
	// More than can be counted is not.
	log, c := new(logState), &Charge{Policies: []Policy{logPolicy(1, 1_000)}}
	for k := range int64(40) {
		log.Settle(logStart+k, c, 0, MaxProduct)
		log.check(t)
	}
	if got := log.count(logStart+40, c.Policies[0]); got != MaxProduct {
		t.Errorf("%d units, want %d", got, MaxProduct)
	}
	if d := peek(log, logStart+1_000, c)[0]; d.Remaining != 1 {
		t.Errorf("peek = %+v, want 1 remaining", d)
	}
}

// What lies in the future counts as spent now, and is stored so by what is taken.
func TestLogClockBack(t *testing.T) {
	for keep := range int64(49) {
		for _, cost := range []int64{1, 5, 100} {
			log, c := new(logState), &Charge{Policies: []Policy{logPolicy(60, 1_000)}, Cost: 1}
			for k := range int64(50) {
				take(log, logStart+10*k, c)
			}
			now := logStart + 10*keep + 5
			c.Cost = 0
			before := slices.Clone(log.chunks)
			if d := peek(log, now, c)[0]; d.Remaining != 10 || d.ResetAfter != time.Second {
				t.Fatalf("peek = %+v, want 10 remaining and reset after 1s", d)
			}
			if !slices.EqualFunc(before, log.chunks, slices.Equal[logChunk]) {
				t.Fatal("peek has written")
			}
			c.Cost = cost
			take(log, now, c)
			log.check(t)
			if tail := log.tail(); tail.newest.at != now {
				t.Fatalf("the newest record is at %d, want %d", tail.newest.at, now)
			}
			want := int64(50)
			if cost <= 10 {
				want += cost
			}
			for window := int64(1); window < 1_000; window += 9 {
				n := want - max(0, keep+1-(window+4)/10)
				if got := log.count(now, logPolicy(1, window)); got != n {
					t.Fatalf("keep %d, cost %d: %d units in %d ms, want %d", keep, cost, got, window, n)
				}
			}
		}
	}
}

// Memory stays in proportion to what is in the window, however long it goes on,
// and is given back.
func TestLogMemory(t *testing.T) {
	log, c := new(logState), &Charge{Policies: []Policy{logPolicy(1_000, 1_000)}, Cost: 1}
	size := func() int {
		n := int(unsafe.Sizeof(*log)) + cap(log.chunks)*int(unsafe.Sizeof(logChunk{}))
		for _, ch := range log.chunks {
			n += cap(ch)
		}
		return n
	}
	now, most := logStart, 0
	take(log, now, c)
	if size() > 64 {
		t.Errorf("%d bytes for one unit, want 64 at most", size())
	}
	for range 100_000 {
		now++
		if !take(log, now, c)[0].Allowed {
			t.Fatal("denied in the steady state")
		}
		most = max(most, size())
	}
	if most > 8*1_000 {
		t.Errorf("%d bytes for 1000 units, want 8000 at most", most)
	}
	for range 100 {
		now += 500
		take(log, now, c)
	}
	if size() > 600 {
		t.Errorf("%d bytes for two units after a thousand, want 600 at most", size())
	}
}
