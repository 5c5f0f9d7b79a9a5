package load

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// slots of Interval are looked at together at most: 5 s.
	slots = int(5 * time.Second / Interval)
	// fewest is how many requests it takes to tell a percentile.
	fewest = 50
	// fewestOthers is how many requests of other clients it takes to leave a client out.
	fewestOthers = 10
	// Buckets halve an octave of microseconds four times: a latency is known to 3 %. The last
	// one begins beyond two minutes.
	fineBits = 4
	buckets  = (27 - fineBits + 1) << fineBits
)

// The samples are in rows: 32 KiB for a zone. A client has one row, which it may share.
const (
	rows   = 64
	places = 64 // of a row
)

// latencies holds samples of how long requests took, in the last slots. No client has more than places
// of them, and one alone does not change what they say while there are others.
type latencies struct {
	slot   atomic.Uint32
	rows   [rows]row
	latest atomic.Int64 // the percentile, in ns; 0: not known

	// Used by sample only; kept to save allocations.
	byAge   [slots][]timed
	timed   []timed
	clients []counts
	numbers map[sample]int // of clients
}

// row holds samples of some clients.
//
// Requests of one slot replace those of slots before. When they are more than places, the row holds
// some of them, from all of the slot.
type row struct {
	requests atomic.Uint32
	earlier  atomic.Uint32 // requests before this slot
	samples  [places]atomic.Uint64
}

// sample is a request: bits of its client, the slot that it was answered in, and the bucket of its
// latency, which is at most buckets.
type sample uint64

const (
	bucketBits = 9
	slotBits   = 16
)

func newSample(c Client, slot uint32, bucket int) sample {
	return sample(c)&^(1<<(bucketBits+slotBits)-1) | sample(slot&(1<<slotBits-1))<<bucketBits | sample(bucket+1)
}

func (s sample) client() sample { return s >> (bucketBits + slotBits) }
func (s sample) bucket() int    { return int(s&(1<<bucketBits-1)) - 1 }

// age returns how many slots before slot the request was answered.
func (s sample) age(slot uint32) int { return int(uint16(slot) - uint16(s>>bucketBits)) }

func newLatencies() *latencies { return &latencies{numbers: make(map[sample]int)} }

// add notes how long a request of a client took. It is safe for concurrent use.
func (l *latencies) add(c Client, d time.Duration) {
	r := &l.rows[c%rows]
	before := r.requests.Add(1) - 1
	from := r.earlier.Load()
	i := before - from
	if i >= places && i < 1<<31 { // the latter: another slot has begun
		chance, _ := bits.Mul64(uint64(before)*0x9E3779B97F4A7C15, uint64(i+1)) // below i + 1, spread evenly
		if chance >= places {
			return
		}
		i = uint32(chance)
	}
	r.samples[(from+i)%places].Store(uint64(newSample(c, l.slot.Load(), bucketOf(d))))
}

// bucketOf returns the number of a latency's bucket.
func bucketOf(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	if us < 1<<fineBits {
		return int(us)
	}
	octave := bits.Len64(us) - fineBits - 1
	return min(octave<<fineBits+int(us>>octave), buckets-1)
}

// latencyOf returns the middle of a bucket.
func latencyOf(bucket int) time.Duration {
	if bucket < 2<<fineBits {
		return time.Duration(bucket) * time.Microsecond
	}
	octave := bucket>>fineBits - 1
	from := (bucket - octave<<fineBits) << octave
	return time.Duration(from+1<<octave/2) * time.Microsecond
}

// timed is a sample that is looked at.
type timed struct{ bucket, client int16 }

// counts are those of a client's samples.
type counts struct {
	all  int
	slow int // among those that slowest has passed
}

// sample returns the 90th percentile in seconds, and goes on to the next slot. It is called by one
// goroutine at a time.
func (l *latencies) sample() reading {
	l.gather()
	if !l.choose() {
		l.latest.Store(0)
		return reading{}
	}
	p := max(1, latencyOf(l.slowest()))
	l.latest.Store(int64(p))
	return reading{p.Seconds(), true}
}

// gather sorts the samples by age, clears those that are too old, and goes on to the next slot.
func (l *latencies) gather() {
	clear(l.numbers)
	l.clients = l.clients[:0]
	for i := range l.byAge {
		l.byAge[i] = l.byAge[i][:0]
	}
	slot := l.slot.Load()
	for i := range l.rows {
		r := &l.rows[i]
		for j := range r.samples {
			place := &r.samples[j]
			s := sample(place.Load())
			if s == 0 {
				continue
			}
			age := s.age(slot)
			if age >= slots {
				place.CompareAndSwap(uint64(s), 0)
				continue
			}
			number, ok := l.numbers[s.client()]
			if !ok {
				number = len(l.clients)
				l.numbers[s.client()] = number
				l.clients = append(l.clients, counts{})
			}
			l.byAge[age] = append(l.byAge[age], timed{int16(s.bucket()), int16(number)})
		}
		r.earlier.Store(r.requests.Load())
	}
	l.slot.Store(slot + 1)
}

// choose takes the samples of the fewest last slots in which all clients but the one with the most samples have `fewest`
// samples. Old samples thus do not count where there are many. It reports whether there are `fewest` in all.
func (l *latencies) choose() bool {
	l.timed = l.timed[:0]
	most := 0
	for _, slot := range l.byAge {
		l.timed = append(l.timed, slot...)
		for _, s := range slot {
			c := &l.clients[s.client]
			c.all++
			most = max(most, c.all)
		}
		if len(l.timed)-most >= fewest {
			break
		}
	}
	return len(l.timed) >= fewest
}

// slowest returns the bucket of the time that nine tenths of the samples do not exceed. Each client weighs the
// same, however many samples it has, and one is left out: the one with the largest share of slow ones.
// A single client is not left out, nor one beside which there are fewer than fewestOthers samples: then
// no other client would show that answers are slow.
func (l *latencies) slowest() int {
	slices.SortFunc(l.timed, func(a, b timed) int { return cmp.Compare(b.bucket, a.bucket) })
	weight := -1.0 // of the clients that count
	for _, c := range l.clients {
		if c.all > 0 {
			weight++
		}
	}
	weight = max(1, weight)
	above, largest := 0.0, 0.0 // the weight of slow samples, and that of the client with the most
	for _, s := range l.timed {
		c := &l.clients[s.client]
		c.slow++
		above += 1 / float64(c.all)
		if len(l.timed)-c.all >= fewestOthers {
			largest = max(largest, float64(c.slow)/float64(c.all))
		}
		const rounding = 1e-9
		if above-largest > weight/10+rounding {
			return int(s.bucket)
		}
	}
	return int(l.timed[len(l.timed)-1].bucket)
}
