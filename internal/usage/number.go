package usage

import (
	"bytes"
	"math"
	"strconv"
)

// MaxCount is the largest count that is read. A larger one counts as MaxCount.
const MaxCount = 1_000_000_000_000

// count returns the value of a JSON number, rounded up. It reports false for a negative
// number and for a value that is not a number: true, null, or a text with digits.
func count(value []byte) (int64, bool) {
	if len(value) == 0 || value[0] != '-' && (value[0] < '0' || value[0] > '9') {
		return 0, false
	}
	// ParseFloat reads hexadecimal numbers and underscores, which JSON does not have.
	if bytes.ContainsAny(value, "xXpP_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(value), 64)
	switch {
	case err != nil && !math.IsInf(f, 0): // a number out of range is infinite
		return 0, false
	case math.IsNaN(f) || f < 0:
		return 0, false
	case f >= MaxCount:
		return MaxCount, true
	}
	return int64(math.Ceil(f)), true
}

// isOne reports whether a number that count reads is 1 or more.
func isOne(value []byte) bool {
	f, err := strconv.ParseFloat(string(value), 64)
	return f >= 1 && (err == nil || math.IsInf(f, 0))
}
