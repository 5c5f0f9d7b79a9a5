package window

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Facts are the properties of an algorithm that stores and configurations need beside its
// decisions. Functions take a charge or an algorithm of this name only.
type Facts struct {
	// Probe is the algorithm with options for a counter by which a store finds out whether
	// its server can keep such counters.
	Probe Algorithm
	// Word is the word in configurations. Two algorithms may share one.
	Word string
	// Weight returns the time that Redis takes to decide on a charge with one name, in
	// units of about 7 µs: the time of a charge of 1 with zset and one limit.
	Weight func(c *Charge) int64
	// SettleWeight is Weight for Store.GiveBack and ChargeMore; nil if it takes as long as a decision.
	SettleWeight func(c *Charge) int64
	// Lease reports whether units can be taken ahead.
	Lease func(a Algorithm) bool
	// Pack returns how many limits a counter may have that shares a key with others, or why
	// it cannot, with the cure.
	Pack func(a Algorithm) (limits int, err error)
	// Receipts reports whether units can be given back at the time at which they were spent.
	Receipts bool
	// Notes reports whether the fields of a charge are kept.
	Notes bool
	// FieldsRead returns how many fields of a hash the twin reads for a decision that is
	// allowed; nil for algorithms that keep no hash.
	FieldsRead func(h History, now int64, c *Charge) int
	// Bucket reports whether units run out evenly, so that a counter never holds more than
	// its limit and no unit has a time.
	Bucket bool
	// Held reports whether units are held until they are given back. They do not leave by themselves, and a counter of
	// this process that holds some is never evicted.
	Held bool
}

// table has the facts of all algorithms. A test ranges over it: see TestFacts here and in
// window/redis.
var (
	zsetFacts = Facts{
		Probe: Zset{}, Word: "zset", Receipts: true,
		Weight: func(c *Charge) int64 {
			weight := perLimit(c, 6)
			for n := c.Cost; n > 1; n /= 10 { // members for each digit
				weight += 2
			}
			return weight
		},
		Lease: always, Pack: neverPacked,
	}
	logFacts = Facts{
		Probe: Log{}, Word: "log", Receipts: true,
		Weight: func(c *Charge) int64 { return perLimit(c, 6) },
		Lease:  always, Pack: neverPacked,
	}
	streamFacts = Facts{
		Probe: Stream{}, Word: "stream", Receipts: true, Notes: true,
		Weight: func(c *Charge) int64 { return perLimit(c, 6) + perLimit(c, 2) },
		Lease:  never, Pack: neverPacked,
	}
	slicesFacts = Facts{
		Probe: Slices{Count: 1}, Word: "slices", Receipts: true, // one slice can be packed
		FieldsRead: func(h History, _ int64, _ *Charge) int { return slicesState(h).len() },
		Weight: func(c *Charge) int64 {
			a := c.Algorithm.(Slices)
			each := int64(7) // fields read in one unit of weight
			if len(c.Policies) == 1 && c.Cost == 1 && !a.Weighted && a.Max == 0 {
				each = 20 // lua/pass/slices.lua decides
			}
			weight := perLimit(c, 6)
			for _, p := range c.Policies {
				weight += min(a.most(p.Window)/each, maxSlicesWeight)
			}
			return weight
		},
		SettleWeight: oneSlice,
		Lease:        func(a Algorithm) bool { return !a.(Slices).Weighted },
		Pack: func(a Algorithm) (int, error) {
			if n := a.(Slices).Count; n < 1 || n > maxPackedSlices {
				return 0, fmt.Errorf("more than %d slices cannot be packed; set count to %d or less, or take out pack", maxPackedSlices, maxPackedSlices)
			}
			return 1, nil
		},
	}
	layersFacts = Facts{
		Probe: Layers{Coarse: time.Millisecond, Fine: time.Millisecond}, Word: "slices", Receipts: true,
		Weight:       func(c *Charge) int64 { return perLimit(c, 6) + 5*int64(len(c.Policies)) },
		SettleWeight: oneSlice, FieldsRead: layersRead,
		Lease: always, Pack: neverPacked,
	}
	gcraFacts = Facts{
		Probe: GCRA{}, Word: "gcra", Bucket: true,
		Weight: func(c *Charge) int64 { return perLimit(c, 6) },
		Lease:  never,
		Pack: func(a Algorithm) (int, error) {
			if a.(GCRA).Native != NativeOff {
				return 0, errors.New("CL.THROTTLE packs nothing; turn native off, or take out pack")
			}
			return maxPackedPolicies, nil
		},
	}
	table = []*Facts{&zsetFacts, &logFacts, &streamFacts, &slicesFacts, &layersFacts, &gcraFacts, &concurrentFacts}
)

func (Zset) facts() *Facts   { return &zsetFacts }
func (Log) facts() *Facts    { return &logFacts }
func (Stream) facts() *Facts { return &streamFacts }
func (Slices) facts() *Facts { return &slicesFacts }
func (Layers) facts() *Facts { return &layersFacts }
func (GCRA) facts() *Facts   { return &gcraFacts }

// AllFacts returns the facts of every algorithm.
func AllFacts() []*Facts { return slices.Clone(table) }

// OptionsOf returns what an algorithm's Lua twin has to know beyond the policies.
func OptionsOf(a Algorithm) []int64 { return a.options() }

// FactsOf returns the facts of an algorithm.
func FactsOf(a Algorithm) *Facts { return a.facts() }

// maxSlicesWeight bounds the weight of one limit: a longer call runs alone anyway.
const maxSlicesWeight = 128

// perLimit returns the weight of a charge whose limits beyond the first take a part of a unit
// each.
func perLimit(c *Charge, part int64) int64 { return 1 + (int64(len(c.Policies))-1)/part }

func oneSlice(*Charge) int64 { return 2 }

func always(Algorithm) bool { return true }

func never(Algorithm) bool { return false }

func neverPacked(a Algorithm) (int, error) {
	return 0, fmt.Errorf("counters of algorithm %s cannot be packed; use gcra or slices, or take out pack", a.Name())
}
