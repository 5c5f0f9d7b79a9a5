package slidingwindow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
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

func (v Value) int() (int64, error) { return quantity.Int(string(v)) }

func (v Value) duration() (time.Duration, error) { return quantity.Duration(string(v)) }

func (v Value) percent() (float64, error) { return quantity.Percent(string(v)) }

// canonicalInt returns a whole number as it is usually spelt, and anything else as it is.
func (v Value) canonicalInt() Value { return Value(quantity.CanonicalInt(string(v))) }

// canonicalDuration does so with a duration.
func (v Value) canonicalDuration() Value { return Value(quantity.PlainDuration(string(v))) }

// plainPercent does so with a percentage.
func (v Value) plainPercent() Value { return Value(quantity.PlainPercent(string(v))) }

func canonicalDuration(d time.Duration) Value { return Value(normalize.Duration(d)) }

// seconds returns a duration as seconds.
func (v Value) seconds() (float64, error) {
	d, err := v.duration()
	return d.Seconds(), err
}

// unless returns what is configured, or nothing if that is the default.
func unless[T ~string](configured, standard T) T {
	if configured == standard {
		return ""
	}
	return configured
}

// checkWord reports a field that has none of the words it can have.
func checkWord[T ~string](field string, value T, words ...T) error {
	if slices.Contains(words, value) {
		return nil
	}
	var all []string
	for _, word := range words {
		if word != "" {
			all = append(all, string(word))
		}
	}
	if cure := foreign.Cure(field, string(value)); cure != "" {
		return fmt.Errorf("%s %q is unknown; %s", field, value, cure)
	}
	return fmt.Errorf("%s %q is unknown; use one of %s", field, value, strings.Join(all, ", "))
}

func checkPrefix(field string, bits *int, most int) error {
	if bits != nil && (*bits < 0 || *bits > most) {
		return fmt.Errorf("%s %d: must be from 0 to %d", field, *bits, most)
	}
	return nil
}

// checkMatcher reports what is wrong with the response matcher of an option.
func checkMatcher(option string, m *caddyhttp.ResponseMatcher) error {
	if len(m.StatusCode) == 0 && len(m.Headers) == 0 {
		return fmt.Errorf("%[1]s: no condition, so that every answer would count; write status <code>... or header <field> <value>, or take %[1]s out", option)
	}
	if _, unnamed := m.Headers[""]; unnamed {
		return fmt.Errorf("%s: header: the name of the field is empty; write header <field> <value>", option)
	}
	for _, code := range m.StatusCode {
		if code < 1 || code > 9 && code < 100 || code > 999 {
			return fmt.Errorf("%s: status %d: must be a status code, or one digit for a class of them", option, code)
		}
	}
	return nil
}

func checkStatus(status int) error {
	if status != 0 && (status < 400 || status > 599) {
		return fmt.Errorf("status %d: must be from 400 to 599", status)
	}
	return nil
}
