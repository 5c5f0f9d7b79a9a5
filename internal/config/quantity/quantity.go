// Package quantity reads the numbers, durations and percentages of a configuration, and limits, which
// are a number and a duration. Its errors say what was probably meant by another text.
package quantity

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
)

var errNoNumber = errors.New(`"" is not a whole number`)

// ErrTooLarge is the error of a whole number that an int64 cannot hold.
var ErrTooLarge = errors.New("is above 9223372036854775807")

// Int reads a whole number.
func Int(text string) (int64, error) {
	if text == "" { // as of a header field that few requests have
		return 0, errNoNumber
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && n > 0:
		return 0, fmt.Errorf("%q %w", text, ErrTooLarge)
	case err != nil:
		return 0, numberError(text)
	}
	return n, nil
}

// Duration reads a duration. A number without a unit counts nanoseconds.
func Duration(text string) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		d := time.Duration(n)
		if d > 0 && d < time.Millisecond { // no option takes so little
			return 0, durationError(text)
		}
		return d, nil
	}
	d, err := ParseDuration(text)
	if err != nil {
		return 0, durationError(text)
	}
	return d, nil
}

// Percent returns a percentage as a share.
func Percent(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("%q is not a percentage; write a number and %%", text)
	}
	return n / 100, nil
}

// CanonicalInt returns a whole number as it is usually spelt, and anything else as it is.
func CanonicalInt(text string) string {
	if n, err := Int(text); err == nil {
		return strconv.FormatInt(n, 10)
	}
	return text
}

// PlainDuration does so with a duration.
func PlainDuration(text string) string {
	if d, err := Duration(text); err == nil {
		return normalize.Duration(d)
	}
	return text
}

// PlainPercent does so with a percentage.
func PlainPercent(text string) string {
	share, err := Percent(text)
	if err != nil {
		return text
	}
	return strconv.FormatFloat(math.Round(share*1e8)/1e6, 'f', -1, 64) + "%"
}
