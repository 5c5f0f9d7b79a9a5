package quantity

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"1m", time.Minute, true},
		{"1d12h", 36 * time.Hour, true},
		{"60000000000", time.Minute, true},
		{"-1s", -time.Second, true},
		{"", 0, false},
		{"1 m", 0, false},
		{"NaN", 0, false},
	} {
		got, err := Duration(c.in)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %s, %v, want %s", c.in, got, err, c.want)
		}
	}
}
