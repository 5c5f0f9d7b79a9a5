package accesslog

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// layouts of times in Caddy's logs that are no numbers. time.Parse accepts fractions of seconds that a layout does not
// name. Only the first has no zone.
var layouts = []string{
	"2006/01/02 15:04:05",       // wall, wall_milli, wall_nano
	"2006-01-02T15:04:05Z07:00", // rfc3339, rfc3339_nano
	"2006-01-02T15:04:05Z0700",  // iso8601
	layout,                      // common_log
}

// time reads the time at which a line was logged, in any format that Caddy has a word for. Times without a zone are
// taken as UTC.
func (l *Line) time(s string) bool {
	if whole, frac, _, ok := decimal(s); ok {
		l.Precision = time.Nanosecond
		l.End, ok = epoch(whole, frac)
		return ok
	}
	for i, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil && isNear(t) {
			l.End, l.Precision, l.local = t.UnixNano(), fraction(s), i == 0
			return true
		}
	}
	return false
}

// isNear reports whether nanoseconds since 1970 of an int64 can hold t.
func isNear(t time.Time) bool { return t.Unix() >= 0 && t.Year() < 2262 }

// fraction returns the precision of a time by the digits after its seconds.
func fraction(s string) time.Duration {
	i := strings.IndexByte(s, '.')
	if i < 0 {
		return time.Second
	}
	n := 0
	for n+i+1 < len(s) && s[n+i+1] >= '0' && s[n+i+1] <= '9' {
		n++
	}
	if n <= 3 {
		return time.Millisecond
	}
	return time.Nanosecond
}

// epoch returns the nanoseconds since 1970 of a number of seconds, milliseconds, microseconds or nanoseconds. The
// magnitude tells them apart from 1973 to 5138.
func epoch(whole, frac int64) (ns int64, ok bool) {
	switch {
	case whole < 0:
		return 0, false
	case whole < 9e9: // up to the year 2255: nanoseconds of an int64 end in 2262
		return whole*1e9 + frac, true
	case whole < 1e11:
		return 0, false
	case whole < 9e12:
		return whole*1e6 + frac/1e3, true
	case whole < 1e14:
		return 0, false
	case whole < 9e15:
		return whole*1e3 + frac/1e6, true
	}
	return whole, whole >= 1e17
}

// decimal reads a number: its whole part, and its fraction in billionths. It reports whether the fraction was written.
func decimal(s string) (whole, frac int64, fractional, ok bool) {
	i, negative := 0, false
	if s != "" && s[0] == '-' {
		i, negative = 1, true
	}
	first := i
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		if i-first == 18 {
			return floating(s)
		}
		whole = whole*10 + int64(s[i]-'0')
	}
	if i == first {
		return 0, 0, false, false
	}
	if i < len(s) && s[i] == '.' {
		fractional = true
		unit := int64(1e8)
		for i++; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			frac += unit * int64(s[i]-'0')
			unit /= 10
		}
	}
	if i < len(s) {
		return floating(s)
	}
	if negative {
		whole, frac = -whole, -frac
	}
	return whole, frac, fractional, true
}

// floating reads what decimal does not: exponents, and numbers of 19 digits.
func floating(s string) (whole, frac int64, fractional, ok bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, 0, false, true
	}
	if b := s[len(s)-1]; b < '0' || b > '9' {
		return 0, 0, false, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.Abs(f) > 9e18 {
		return 0, 0, false, false
	}
	w, fr := math.Modf(f)
	return int64(w), int64(math.Round(fr * 1e9)), true, true
}
