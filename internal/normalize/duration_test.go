package normalize

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		in   time.Duration
		want string
	}{
		{time.Millisecond, "1ms"},
		{1500 * time.Millisecond, "1.5s"},
		{time.Second, "1s"},
		{90 * time.Second, "1m30s"},
		{5 * time.Minute, "5m"},
		{90 * time.Minute, "90m"},
		{time.Hour, "1h"},
		{24 * time.Hour, "24h"},
	} {
		if got := Duration(c.in); got != c.want {
			t.Errorf("Duration(%s): got %s, want %s", c.in, got, c.want)
		}
	}
}
