// Package report turns what was measured in turn into Markdown: medians, spread,
// and ratios of what was measured next to each other.
package report

import (
	"math"
	"slices"
	"strconv"
)

// Summary is what a number of rounds came to.
type Summary struct{ Median, Min, Max float64 }

// Summarize returns the median and the extremes of one value or more; NaN of none.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Summary{median, sorted[0], sorted[len(sorted)-1]}
}

// Divide returns a÷b round by round, for the rounds that both have: what the two
// share, such as a machine that is busy for a while, then cancels out.
func Divide(a, b []float64) []float64 {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return ratios
}

// Number writes a value with the digits that matter; – for one that there is not.
func Number(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case size >= 99.95:
		return thousands(int64(math.Round(v)))
	case size >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// String writes the median, and the extremes if they differ from it.
func (s Summary) String() string {
	median, low, high := Number(s.Median), Number(s.Min), Number(s.Max)
	if low == median && high == median {
		return median
	}
	return median + " (" + low + " – " + high + ")"
}

// Quantile returns the value that the share q of the values does not exceed; NaN
// of none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
