package slidingwindow

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/duration"
	"github.com/slidingwindow/caddy-sliding-window/internal/quantity"
)

// Value is a number or a duration in configuration. It may also be a string,
// since it may hold placeholders. A duration is written as everywhere in Caddy, and may
// count weeks: 90s, 5m, 1d, 1w. Without a unit it counts nanoseconds, as everywhere in
// Caddy's JSON.
type Value string

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err == nil {
		*v = Value(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("%s is neither a number nor a string", b)
	}
	*v = Value(n)
	return nil
}

// MarshalJSON implements json.Marshaler: whole numbers stay numbers, unless Caddy
// might round them, which keeps configuration in doubles as it adapts it.
func (v Value) MarshalJSON() ([]byte, error) {
	const exact = 1 << 53
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil && -exact <= n && n <= exact && strconv.FormatInt(n, 10) == string(v) {
		return []byte(v), nil
	}
	return json.Marshal(string(v))
}

// dynamic reports whether the value is known only once a request comes.
func (v Value) dynamic() bool { return strings.Contains(string(v), "{") }

func (v Value) int() (int64, error)              { return quantity.Int(string(v)) }
func (v Value) duration() (time.Duration, error) { return quantity.Duration(string(v)) }
func (v Value) percent() (float64, error)        { return quantity.Percent(string(v)) }

// plainInt returns a whole number as it is usually spelt, and anything else as it is.
func (v Value) plainInt() Value { return Value(quantity.PlainInt(string(v))) }

// plainDuration does so with a duration.
func (v Value) plainDuration() Value { return Value(quantity.PlainDuration(string(v))) }

// plainPercent does so with a percentage.
func (v Value) plainPercent() Value { return Value(quantity.PlainPercent(string(v))) }

func plainDuration(d time.Duration) Value { return Value(duration.Short(d)) }
