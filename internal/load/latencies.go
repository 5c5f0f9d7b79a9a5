package load

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// slots of Interval are looked at together at most: 5 s.
	slots = int(5 * time.Second / Interval)
	// fewest is how many requests it takes to tell a percentile.
	fewest = 50
	// Buckets halve an octave of microseconds four times: a latency is known to 3 %. The last
	// one begins beyond two minutes.
	fineBits = 4
	buckets  = (27 - fineBits + 1) << fineBits
)

// latencies counts how long requests took, in the last slots.
type latencies struct {
	slot   atomic.Int32
	counts [slots][buckets]atomic.Uint32
	latest atomic.Int64 // the percentile, in ns; 0: not known
}

func newLatencies() *latencies { return new(latencies) }

func (l *latencies) add(d time.Duration) { l.counts[l.slot.Load()][bucketOf(d)].Add(1) }

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

// sample returns the 90th percentile in seconds, and goes on to the next slot. It is that of the last
// slots that have enough requests together, so that what was long ago does not count where there are
// many.
func (l *latencies) sample() reading {
	var sums [buckets]uint64
	var all uint64
	slot := int(l.slot.Load())
	for i := 0; i < slots && all < fewest; i++ {
		counts := &l.counts[(slot-i+slots)%slots]
		for j := range counts {
			n := uint64(counts[j].Load())
			sums[j] += n
			all += n
		}
	}
	next := (slot + 1) % slots
	for j := range l.counts[next] {
		l.counts[next][j].Store(0)
	}
	l.slot.Store(int32(next))
	if all < fewest {
		l.latest.Store(0)
		return reading{}
	}
	rank, bucket := all-all/10, 0 // the request that nine tenths are not slower than
	for seen := sums[0]; seen < rank; seen += sums[bucket] {
		bucket++
	}
	p := max(1, latencyOf(bucket))
	l.latest.Store(int64(p))
	return reading{p.Seconds(), true}
}
