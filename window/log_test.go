package window

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const logStart int64 = 1_800_000_000_000

func logPolicy(limit, ms int64) Policy {
	return Policy{Limit: limit, Window: time.Duration(ms) * time.Millisecond}
}

// kept is a history and the algorithm that decides on it.
type kept struct {
	Algorithm
	h records
}

// take decides as a store does on a request of one charge.
func (k *kept) take(now int64, c *Charge) []Decision {
	ds := make([]Decision, len(c.Policies))
	c.Algorithm = k.Algorithm
	if h := History(k.h); k.look(h, now, c, ds) && c.Cost > 0 {
		k.h = records(k.spend(h, now, c, ds))
	} else {
		k.h = records(k.explain(h, now, c, ds, true))
	}
	return ds
}

func (k *kept) peek(now int64, c *Charge) []Decision {
	ds := make([]Decision, len(c.Policies))
	c.Algorithm = k.Algorithm
	k.look(History(k.h), now, c, ds)
	k.explain(History(k.h), now, c, ds, false)
	return ds
}

func (k *kept) refund(now int64, c *Charge, at, units int64) {
	k.h = records(k.giveBack(History(k.h), now, c, at, units))
}

func (k *kept) add(now int64, c *Charge, units int64) {
	k.h = records(k.chargeMore(History(k.h), now, c, units))
}

// chunks returns where the chunks lie.
func (k *kept) chunks() []place {
	var all []place
	for p := k.h.oldest(); !p.nowhere(); p = k.h.next(p) {
		all = append(all, p)
	}
	return all
}

// check holds the history against what the layout promises.
func (k *kept) check(t *testing.T) {
	t.Helper()
	at, total, chunks := int64(-1), int64(-1), k.chunks()
	for i, where := range chunks {
		p := k.h.part(where)
		if total >= 0 && p.before() != total {
			t.Fatalf("chunk %d begins at total %d, the one before it ends at %d", i, p.before(), total)
		}
		all := p.records()
		next := all[0].at
		for entries := p.entries; len(entries) > 0; {
			gap, _, size := readEntry(entries)
			next += gap
			entries = entries[size:]
		}
		if p.oldest() != all[0].at || next != p.newest.at {
			t.Fatalf("chunk %d says that it goes from %d to %d, its records go from %d to %d", i, p.oldest(), p.newest.at, all[0].at, next)
		}
		total = p.before()
		for n, r := range all {
			if r.at <= at || r.units < 1 {
				t.Fatalf("chunk %d, record %d is %+v, after one at %d", i, n, r, at)
			}
			at, total = r.at, total+r.units
		}
		if total != p.upTo || total > MaxProduct || p.before() < 0 {
			t.Fatalf("chunk %d ends at total %d, and says %d", i, total, p.upTo)
		}
	}
	if len(chunks) > 0 && chunks[len(chunks)-1] != k.h.newest() {
		t.Fatalf("the last of the chunks at %v is said to be at %v", chunks, k.h.newest())
	}
}

// exactLogs returns an empty history for each algorithm that keeps records.
func exactLogs() []*kept {
	return []*kept{{Algorithm: Log{}}, {Algorithm: Zset{}}, {Algorithm: Stream{}}}
}

// Any number of units from none to several chunks, at every edge of the window.
func TestLogChunks(t *testing.T) {
	for _, gap := range []int64{0, 1, 63, 64, 8_191, 8_192, 1 << 20, 1 << 27} {
		for _, units := range []int64{1, 2, 127, 128, 255, 256, 1 << 14, 1 << 40} {
			longest := logPolicy(MaxProduct/(250*gap+1), 250*gap+1)
			if units > 100 && gap > 8_191 {
				continue // more than such a limit can be
			}
			for _, log := range exactLogs()[:2] {
				slow := new(slowLog)
				for n := range int64(200) {
					now := logStart + n*gap
					c := &Charge{Policies: []Policy{longest}, Cost: min(units, longest.Limit/200)}
					if got, want := log.take(now, c), slow.decide(now, c, true); !slices.Equal(got, want) {
						t.Fatalf("%s, gap %d, units %d, unit %d: %+v, want %+v", log.Name(), gap, units, n, got, want)
					}
					log.check(t)
					for back := n % 11; back < n+2; back += 11 {
						c := &Charge{Policies: []Policy{
							logPolicy(1, back*gap+1), logPolicy(units, max(1, back*gap)), longest,
						}, Cost: 1}
						if got, want := log.peek(now, c), slow.decide(now, c, false); !slices.Equal(got, want) {
							t.Fatalf("%s, gap %d, units %d, unit %d, window of %d: %+v, want %+v", log.Name(), gap, units, n, back, got, want)
						}
					}
				}
				if n := len(log.chunks()); gap == 1 && units == 1 && n < 2 {
					t.Errorf("%s: %d chunks of 200 units, want more", log.Name(), n)
				}
			}
		}
	}
}

// TestLogSettle gives back at every record of a long log, the first and the last
// of each chunk among them.
func TestLogSettle(t *testing.T) {
	const n = 180
	for _, back := range []int64{1, 2, 3} {
		for at := logStart - 1; at <= logStart+n; at++ {
			for _, log := range exactLogs()[:2] {
				slow, c := new(slowLog), &Charge{Policies: []Policy{logPolicy(1_000, 10_000)}}
				for k := range int64(n) {
					log.add(logStart+k, c, 1+k%3)
					slow.spend(logStart+k, 1+k%3)
				}
				for range 2 {
					log.refund(logStart+n, c, at, back)
					slow.giveBack(at, back)
				}
				log.check(t)
				log.compare(t, logStart+n, slow, n)
				// Down to 0, from both ends.
				for k := range int64(n) {
					log.refund(logStart+n, c, logStart+k, 3)
					log.refund(logStart+n, c, logStart+n-1-k, 3)
					log.check(t)
				}
				if len(log.h) != 0 {
					t.Fatalf("%d bytes after all was given back", len(log.h))
				}
			}
		}
	}
}

// compare compares the history with a list in every window of up to n ms.
func (k *kept) compare(t *testing.T, now int64, slow *slowLog, n int64) {
	t.Helper()
	for window := int64(1); window <= n+1; window++ {
		c := &Charge{Policies: []Policy{logPolicy(5, window), logPolicy(0, window), logPolicy(1_000, window)}, Cost: 3}
		if got, want := k.peek(now, c), slow.decide(now, c, false); !slices.Equal(got, want) {
			t.Fatalf("window of %d: %+v, want %+v", window, got, want)
		}
	}
}

// All that keep records decide as a list does, field for field, as long as the clock does
// not step back and the longest window stays.
func TestLogEqualsList(t *testing.T) {
	denials := 0
	for walk := range uint64(200) {
		for _, log := range exactLogs() {
			r, slow := rand.New(rand.NewPCG(1, walk)), new(slowLog)
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
					units := 1 + r.Int64N(4)*scale
					log.add(now, c, units)
					slow.spend(now, units)
					spent = append(spent, now)
				} else if n < 3 && len(spent) > 0 {
					at, units := spent[r.IntN(len(spent))], 1+r.Int64N(4)*scale
					log.refund(now, c, at, units)
					slow.giveBack(at, units)
				}
				got, want := log.take(now, c), slow.decide(now, c, true)
				if !slices.Equal(got, want) {
					t.Fatalf("%s, walk %d, step %d at %d: take(%+v) = %+v, want %+v", log.Name(), walk, step, now, c, got, want)
				}
				if Allowed(got) {
					spent = append(spent, now)
				} else {
					denials++
				}
				log.check(t)
			}
		}
	}
	t.Logf("%d denials", denials)
}

// Long logs take many pages: they decide as a list does, whatever the window, and when units
// are given back from the middle or the clock steps back.
func TestLogPages(t *testing.T) {
	const length = 40_000
	for _, log := range exactLogs() {
		r, slow, now := rand.New(rand.NewPCG(3, 3)), new(slowLog), logStart
		most := 0
		for step := range 4_000 {
			now += r.Int64N(12)
			c := &Charge{Cost: 1, Policies: []Policy{
				logPolicy(10_000_000, length), logPolicy(1+r.Int64N(1_000_000), 1+r.Int64N(length)), logPolicy(1_000_000, 1+r.Int64N(length)),
			}}
			switch n := r.IntN(300); {
			case n < 60:
				c.Cost = r.Int64N(1_000)
			case n < 70:
				at, back := now-r.Int64N(length), 1+r.Int64N(400)
				log.refund(now, c, at, back)
				slow.giveBack(at, back)
			case n == 70 && log.Name() != "zset": // which leaves in the future what is there
				now -= r.Int64N(length / 100)
			}
			if got, want := log.take(now, c), slow.decide(now, c, true); !slices.Equal(got, want) {
				t.Fatalf("%s, step %d at %d: take(%+v) = %+v, want %+v", log.Name(), step, now, c, got, want)
			}
			*slow = slices.DeleteFunc(*slow, func(r slowRecord) bool { return r.at <= now-2*length })
			log.check(t)
			if log.h[0] != 0 {
				most = max(most, page(log.h.newest().begin()))
			}
		}
		if most < 2 {
			t.Errorf("%s: %d pages at most, want more", log.Name(), 1+most)
		}
	}
}

// What has left the longest window is gone, to the unit, from zset and stream; a longer
// window does not bring it back.
func TestExactLogsForget(t *testing.T) {
	long := logPolicy(1_000, 1_000_000)
	for _, log := range exactLogs()[1:] {
		take := func(at, length int64) {
			t.Helper()
			log.take(at, &Charge{Policies: []Policy{logPolicy(1_000, length)}, Cost: 1})
			log.check(t)
			all, units := log.h.all(), int64(0)
			for _, r := range all {
				units += r.units
			}
			if all[0].at <= at-length {
				t.Fatalf("%s, in %d ms: the unit of %d is there %d ms later", log.Name(), length, all[0].at, at-all[0].at)
			}
			if d := log.peek(at, &Charge{Policies: []Policy{long}})[0]; d.Remaining != 1_000-units {
				t.Fatalf("%s, in %d ms: %+v with %d units", log.Name(), length, d, units)
			}
		}
		for _, length := range []int64{1, 63, 64, 65, 66, 67, 130, 300} {
			for _, gap := range []int64{1, 2, 99} {
				log.h = nil
				for n := range 3 * length {
					take(logStart+n*gap, length)
				}
			}
		}
		for first := range int64(50) { // a shorter gap begins a chunk while one leaves
			log.h = nil
			for n := range int64(60) {
				take(logStart+n*100, 4_000+first)
			}
			take(logStart+59*100+63, 4_000+first)
		}
		log.h = nil
		for n := range int64(200) {
			take(logStart+n, 1_000_000)
		}
		for n := int64(150); n > 0; n -= 3 { // the clock steps back
			take(logStart+n, 50)
		}
	}
}

// Running totals start again before they are no longer exact.
func TestLogRebase(t *testing.T) {
	rebases := 0
	for walk := range uint64(100) {
		r := rand.New(rand.NewPCG(2, walk))
		log, slow := &kept{Algorithm: Log{}}, new(slowLog)
		now, window := logStart, 1+r.Int64N(30)
		limit := MaxProduct / window
		for step := range 500 {
			now += r.Int64N(1 + window/4)
			c := &Charge{Policies: []Policy{logPolicy(limit, window)}, Cost: 1 + r.Int64N(limit)>>r.IntN(10)}
			_, total := log.h.last()
			gone := log.h.count(now, c.Policies[0]) == 0
			if got, want := log.take(now, c), slow.decide(now, c, true); !slices.Equal(got, want) {
				t.Fatalf("walk %d, step %d at %d: take(%+v) = %+v, want %+v", walk, step, now, c, got, want)
			}
			log.check(t)
			if _, after := log.h.last(); after < total && !gone {
				rebases++
			}
		}
	}
	if rebases < 100 {
		t.Errorf("%d rebases in 100 walks, want more", rebases)
	}
	// More than can be counted is not.
	log, c := &kept{Algorithm: Log{}}, &Charge{Policies: []Policy{logPolicy(1, 1_000)}}
	for k := range int64(40) {
		log.add(logStart+k, c, MaxProduct)
		log.check(t)
	}
	if got := log.h.count(logStart+40, c.Policies[0]); got != MaxProduct {
		t.Errorf("%d units, want %d", got, MaxProduct)
	}
	if d := log.peek(logStart+1_000, c)[0]; d.Remaining != 1 {
		t.Errorf("peek = %+v, want 1 remaining", d)
	}
}

// What lies in the future counts as spent now, and is stored so by what is taken.
func TestLogClockBack(t *testing.T) {
	for _, units := range []int64{2, 5, 50} { // in one chunk, or two
		for keep := range units - 1 {
			for _, cost := range []int64{1, 5, 100} {
				log, c := &kept{Algorithm: Log{}}, &Charge{Policies: []Policy{logPolicy(units+10, 1_000)}, Cost: 1}
				for k := range units {
					log.take(logStart+10*k, c)
				}
				now := logStart + 10*keep + 5
				c.Cost = 0
				before := slices.Clone(log.h)
				if d := log.peek(now, c)[0]; d.Remaining != 10 || d.ResetAfter != time.Second {
					t.Fatalf("peek = %+v, want 10 remaining and reset after 1s", d)
				}
				if !slices.Equal(before, log.h) {
					t.Fatal("peek has written")
				}
				c.Cost = cost
				log.take(now, c)
				log.check(t)
				if newest, _ := log.h.last(); newest != now {
					t.Fatalf("the newest record is at %d, want %d", newest, now)
				}
				want := units
				if cost <= 10 {
					want += cost
				}
				for window := int64(1); window < 1_000; window += 9 {
					n := want - max(0, keep+1-(window+4)/10)
					if got := log.h.count(now, logPolicy(1, window)); got != n {
						t.Fatalf("keep %d, cost %d: %d units in %d ms, want %d", keep, cost, got, window, n)
					}
				}
			}
		}
	}
}

// Memory stays in proportion to what is in the window, however long it goes on,
// and is given back.
func TestLogMemory(t *testing.T) {
	log, c := &kept{Algorithm: Log{}}, &Charge{Policies: []Policy{logPolicy(1_000, 1_000)}, Cost: 1}
	size := func() int { return len(log.h) }
	now, most := logStart, 0
	log.take(now, c)
	if size() > 64 {
		t.Errorf("%d bytes for one unit, want 64 at most", size())
	}
	for range 100_000 {
		now++
		if !log.take(now, c)[0].Allowed {
			t.Fatal("denied in the steady state")
		}
		most = max(most, size())
	}
	if most > 8*1_000 {
		t.Errorf("%d bytes for 1000 units, want 8000 at most", most)
	}
	for range 100 {
		now += 500
		log.take(now, c)
	}
	if size() > 600 {
		t.Errorf("%d bytes for two units after a thousand, want 600 at most", size())
	}
}
