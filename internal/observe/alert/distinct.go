package alert

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// distinct estimates how many keys there were, within about 3 %, from their hashes: a HyperLogLog
// (Flajolet et al., 2007). It is safe for concurrent use.
type distinct struct{ registers [registers]atomic.Uint32 }

const registers = 1 << registerBits

const registerBits = 10

func (d *distinct) add(hash uint64) {
	rank := uint32(bits.LeadingZeros64(hash<<registerBits|1<<(registerBits-1))) + 1
	r := &d.registers[hash>>(64-registerBits)]
	for old := r.Load(); rank > old; old = r.Load() {
		if r.CompareAndSwap(old, rank) {
			return
		}
	}
}

// take returns the estimate, and begins anew.
func (d *distinct) take() int64 {
	var sum float64
	var zeros int
	for i := range d.registers {
		rank := d.registers[i].Swap(0)
		sum += math.Ldexp(1, -int(rank))
		if rank == 0 {
			zeros++
		}
	}
	estimate := 0.7213 / (1 + 1.079/registers) * registers * registers / sum
	if estimate <= 2.5*registers && zeros > 0 {
		estimate = registers * math.Log(registers/float64(zeros))
	}
	return int64(math.Round(estimate))
}
