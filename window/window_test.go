package window_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPolicyCheck(t *testing.T) {
	for i, c := range []struct {
		policy window.Policy
		want   string // in the error; empty: fine
	}{
		0:  {window.Policy{Limit: 1, Window: time.Millisecond}, ""},
		1:  {window.Policy{Limit: 0, Window: time.Hour}, ""},
		2:  {window.Policy{Limit: 100, Window: 250 * 365 * 24 * time.Hour}, ""},
		3:  {window.Policy{Limit: 1 << 53, Window: time.Millisecond}, ""},
		4:  {window.Policy{Limit: 1<<53 + 1, Window: time.Millisecond}, "2^53"},
		5:  {window.Policy{Limit: 1 << 52, Window: 2 * time.Millisecond}, ""},
		6:  {window.Policy{Limit: 1<<52 + 1, Window: 2 * time.Millisecond}, "2^53"},
		7:  {window.Policy{Limit: 1<<63 - 1, Window: time.Hour}, "2^53"},
		8:  {window.Policy{Limit: -1, Window: time.Second}, "limit -1 is negative"},
		9:  {window.Policy{Limit: 1, Window: 0}, "window 0s: must be greater than 0"},
		10: {window.Policy{Limit: 1, Window: -time.Second}, "window -1s: must be greater than 0"},
		11: {window.Policy{Limit: 1, Window: time.Microsecond}, "window 1µs is not a whole number of milliseconds"},
		12: {window.Policy{Limit: 1, Window: 1500 * time.Microsecond}, "window 1.5ms is not a whole number of milliseconds"},
	} {
		err := c.policy.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("case %d: %+v.Check() = %v, want %q", i, c.policy, err, c.want)
		}
	}
}

func TestSlicesCheck(t *testing.T) {
	for i, c := range []struct {
		algo window.Slices
		want string
	}{
		0: {window.Slices{}, ""},
		1: {window.Slices{Count: 1, Weighted: true}, ""},
		2: {window.Slices{Size: time.Millisecond}, ""},
		3: {window.Slices{Count: -1}, "count -1"},
		4: {window.Slices{Size: -time.Second}, "size -1s"},
		5: {window.Slices{Size: time.Microsecond}, "size 1µs"},
		6: {window.Slices{Count: 2, Size: time.Second}, "cannot be combined; take out one"},

		7:  {window.Slices{Min: time.Millisecond, Max: time.Second}, ""},
		8:  {window.Slices{Min: time.Second, Max: time.Second}, ""},
		9:  {window.Slices{Max: time.Second}, "adaptive 0s 1s: min 0s is not a whole number of milliseconds above 0"},
		10: {window.Slices{Min: time.Second}, "adaptive 1s 0s: max 0s is not"},
		11: {window.Slices{Min: time.Millisecond, Max: -time.Second}, "max -1s is not"},
		12: {window.Slices{Min: time.Microsecond, Max: time.Second}, "min 1µs is not"},
		13: {window.Slices{Min: time.Second, Max: time.Millisecond}, "min 1s is above max 1ms"},
		14: {window.Slices{Min: time.Second, Max: time.Second, Count: 3}, "adaptive 1s 1s and count 3 cannot be combined; take out one"},
		15: {window.Slices{Min: time.Second, Max: time.Second, Size: time.Second}, "adaptive 1s 1s and size 1s cannot be combined; take out one"},
		16: {window.Slices{Min: time.Second, Max: time.Second, Weighted: true}, "adaptive 1s 1s and weighted cannot be combined; take out weighted"},
	} {
		err := window.CheckAlgorithm(c.algo)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("case %d: %+v.Check() = %v, want %q", i, c.algo, err, c.want)
		}
	}
}
