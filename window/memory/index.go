package memory

import (
	"math/bits"
	"slices"
)

// index finds slots by their hash: each bucket is a chain of slots. It grows and shrinks by
// one bucket at a time (linear hashing), so that no request waits for more than that.
//
// The hashes are kept here, packed closely, rather than in the slots, which are seldom in a
// cache of the processor. A lookup then misses the cache for the slot of its key only.
type index struct {
	buckets []int32 // first slot of each, or none
	links   []link  // one for each slot
}

// link is a slot in its chain.
type link struct {
	hash uint32
	next int32 // slot, or none
}

// bucket returns the bucket of a hash. Its number is the low bits of the hash that count all
// buckets, or one bit less if that bucket does not exist yet.
func (x *index) bucket(hash uint32) *int32 {
	n := uint32(len(x.buckets))
	mask := uint32(1)<<bits.Len32(n-1) - 1
	b := hash & mask
	if b >= n {
		b &= mask >> 1
	}
	return &x.buckets[b]
}

// first returns the first slot of a hash, or none.
func (x *index) first(hash uint32) int32 {
	if len(x.buckets) == 0 {
		return none
	}
	return x.from(*x.bucket(hash), hash)
}

// next returns the slot of the same hash that follows slot i, or none.
func (x *index) next(i int32) int32 { return x.from(x.links[i].next, x.links[i].hash) }

// from returns the first slot of a hash in the chain that begins at i, or none.
func (x *index) from(i int32, hash uint32) int32 {
	for i != none && x.links[i].hash != hash {
		i = x.links[i].next
	}
	return i
}

// add adds slot i, the next one or one that was removed, and buckets for three
// quarters of them to be in use.
func (x *index) add(i int32, hash uint32) {
	if int(i) == len(x.links) {
		x.links = append(x.links, link{})
	}
	for len(x.buckets) < 2 || len(x.buckets)*3 < len(x.links)*4 {
		x.split()
	}
	first := x.bucket(hash)
	x.links[i], *first = link{hash, *first}, i
}

// remove takes slot i out of its chain. It is to be added again, or given up.
func (x *index) remove(i int32) {
	*x.pointer(i) = x.links[i].next
	for n := len(x.buckets); n > 2 && n*3 > len(x.links)*8; n-- {
		x.merge()
	}
}

// giveUp gives slot i up, which was removed: the last slot is slot i from now on.
func (x *index) giveUp(i int32) {
	last := int32(len(x.links) - 1)
	if i != last {
		*x.pointer(last) = i
		x.links[i] = x.links[last]
	}
	x.links = x.links[:last]
	if cap(x.links) > 4*len(x.links)+8 {
		x.links = slices.Clone(x.links)
	}
}

// pointer returns where the chain points to slot i.
func (x *index) pointer(i int32) *int32 {
	at := x.bucket(x.links[i].hash)
	for *at != i {
		at = &x.links[*at].next
	}
	return at
}

// split adds a bucket. It takes its slots from the one that had them so far.
func (x *index) split() {
	n := uint32(len(x.buckets))
	x.buckets = append(x.buckets, none)
	if n == 0 {
		return
	}
	mask := uint32(1)<<bits.Len32(n) - 1
	stay, leave := &x.buckets[n&(mask>>1)], &x.buckets[n]
	for i := *stay; i != none; {
		l := &x.links[i]
		if l.hash&mask == n {
			*leave, leave = i, &l.next
		} else {
			*stay, stay = i, &l.next
		}
		i = l.next
	}
	*stay, *leave = none, none
}

// merge undoes the last split.
func (x *index) merge() {
	n := uint32(len(x.buckets) - 1)
	mask := uint32(1)<<bits.Len32(n) - 1
	end := &x.buckets[n&(mask>>1)]
	for *end != none {
		end = &x.links[*end].next
	}
	*end = x.buckets[n]
	x.buckets = x.buckets[:n]
	if cap(x.buckets) > 4*len(x.buckets)+8 {
		x.buckets = slices.Clone(x.buckets)
	}
}
