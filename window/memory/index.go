package memory

import (
	"math/bits"
	"slices"
)

// index finds slots by their hash: each bucket is a chain of slots. It grows and
// shrinks by one bucket at a time (linear hashing), so that no request waits for
// more than that.
type index struct {
	buckets []int32 // first slot of each, or none
}

// bucket returns the bucket of a hash: as many of its bits as number all buckets,
// or one bit less if there is no such bucket yet.
func (x *index) bucket(hash uint32) *int32 {
	n := uint32(len(x.buckets))
	mask := uint32(1)<<bits.Len32(n-1) - 1
	b := hash & mask
	if b >= n {
		b &= mask >> 1
	}
	return &x.buckets[b]
}

// first returns the first slot to look at for a hash.
func (x *index) first(hash uint32) int32 {
	if len(x.buckets) == 0 {
		return none
	}
	return *x.bucket(hash)
}

// add adds slot i, and buckets for three quarters of them to be in use.
func (x *index) add(s *shard, i int32) {
	for len(x.buckets) < 2 || len(x.buckets)*3 < int(s.len)*4 {
		x.split(s)
	}
	first := x.bucket(s.slot(i).hash)
	s.slot(i).next, *first = *first, i
}

// remove takes slot i out of its chain.
func (x *index) remove(s *shard, i int32) {
	*x.link(s, i) = s.slot(i).next
	for n := len(x.buckets); n > 2 && n*3 > int(s.len)*8; n-- {
		x.merge(s)
	}
}

// move writes that slot from is slot to from now on.
func (x *index) move(s *shard, from, to int32) { *x.link(s, from) = to }

// link returns where the chain points to slot i.
func (x *index) link(s *shard, i int32) *int32 {
	at := x.bucket(s.slot(i).hash)
	for *at != i {
		at = &s.slot(*at).next
	}
	return at
}

// split adds a bucket. It takes its slots from the one that had them so far.
func (x *index) split(s *shard) {
	n := uint32(len(x.buckets))
	x.buckets = append(x.buckets, none)
	if n == 0 {
		return
	}
	mask := uint32(1)<<bits.Len32(n) - 1
	stay, leave := &x.buckets[n&(mask>>1)], &x.buckets[n]
	for i := *stay; i != none; {
		sl := s.slot(i)
		if sl.hash&mask == n {
			*leave, leave = i, &sl.next
		} else {
			*stay, stay = i, &sl.next
		}
		i = sl.next
	}
	*stay, *leave = none, none
}

// merge undoes the last split.
func (x *index) merge(s *shard) {
	n := uint32(len(x.buckets) - 1)
	mask := uint32(1)<<bits.Len32(n) - 1
	end := &x.buckets[n&(mask>>1)]
	for *end != none {
		end = &s.slot(*end).next
	}
	*end = x.buckets[n]
	x.buckets = x.buckets[:n]
	if cap(x.buckets) > 4*len(x.buckets)+8 {
		x.buckets = slices.Clone(x.buckets)
	}
}
