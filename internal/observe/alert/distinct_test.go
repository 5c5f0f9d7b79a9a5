package alert

import (
	"fmt"
	"hash/maphash"
	"math"
	"testing"
)

// The estimate is within four standard errors of a HyperLogLog with 1,024 registers.
func TestDistinct(t *testing.T) {
	var d distinct
	for _, n := range []int{0, 1, 10, 100, 1000, 10_000, 1_000_000} {
		for range 2 { // the same key twice is one
			for i := range n {
				d.add(maphash.String(keySeed, fmt.Sprint(n, i)))
			}
		}
		got := float64(d.take())
		if math.Abs(got-float64(n)) > 4*1.04/math.Sqrt(registers)*float64(n) {
			t.Errorf("%d keys: the estimate is %v", n, got)
		}
	}
	if got := d.take(); got != 0 {
		t.Errorf("%d keys are left after it began anew", got)
	}
}
