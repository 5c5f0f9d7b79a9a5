package usage

import (
	"fmt"
	"math"
)

// MaxWeight is the largest weight.
const MaxWeight = 1000

// Weights are the units that a token costs. Three decimals of a weight count.
type Weights struct {
	Input  float64 // a token that the model reads
	Cached float64 // a token that the model reads from a cache
	Output float64 // a token that the model writes
}

// Check reports a weight that is negative, above MaxWeight, or not a number.
func (w Weights) Check() error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"input", w.Input}, {"cached", w.Cached}, {"output", w.Output}} {
		if !(f.value >= 0 && f.value <= MaxWeight) {
			return fmt.Errorf("weight %s must be from 0 to %d, not %v", f.name, MaxWeight, f.value)
		}
	}
	return nil
}

// Units returns what r costs, rounded up to a whole unit: with Input 1 and Output 2.5, 10
// tokens read and 3 written cost 18 units. Check must have passed. The result is at most
// 3 * MaxCount * MaxWeight, which is below 2^53.
func (w Weights) Units(r Result) int64 {
	// The counts are at most 10^12 and the weights at most 10^6 thousandths, so that
	// the sum of three products fits an int64.
	sum := (r.Input-r.Cached)*thousandths(w.Input) + r.Cached*thousandths(w.Cached) + r.Output*thousandths(w.Output)
	return (sum + 999) / 1000
}

func thousandths(w float64) int64 {
	return int64(math.Round(w * 1000))
}
