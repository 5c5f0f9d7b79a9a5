package window_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
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

// TestInvalid holds that errors name the zone, and what is wrong.
func TestInvalid(t *testing.T) {
	c := window.Charge{Zone: "api", Key: "secret", Cost: 1, Policies: []window.Policy{{Limit: 1, Window: time.Second}}, Algorithm: window.Slices{Count: -1}}
	bad := c
	bad.Policies = []window.Policy{{Limit: -1, Window: time.Second}}
	bad.Algorithm = window.Zset{}
	for want, err := range map[string]error{
		`zone "api": invalid charge: slices: count -1: must be greater than 0`:       engine.CheckCharges([]window.Charge{c}),
		`zone "api": invalid charge: limit -1 is negative; use 0 to deny everything`: engine.CheckCharges([]window.Charge{bad}),
		`zone "api": invalid charge: delta -9223372036854775808 is beyond 2^53`:      engine.CheckSettle(c, -1<<63),
		`zone "": invalid charge: no algorithm`:                                      engine.CheckReset(window.Charge{}),
		`zone "api": invalid charge: the same counter twice in one request`:          engine.CheckCharges(twice(c)),
	} {
		if err == nil || err.Error() != want || !errors.Is(err, window.ErrInvalid) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := engine.CheckCharges(nil); err != nil {
		t.Errorf("CheckCharges(nil) = %v", err)
	}
}

func twice(c window.Charge) []window.Charge {
	c.Algorithm = window.Zset{}
	return []window.Charge{c, c}
}

// TestAppendKey holds the names, for a changed one would lose every count.
func TestAppendKey(t *testing.T) {
	for _, c := range []struct{ zone, key, want string }{
		{"api", "192.0.2.1", "zset:api:192.0.2.1"},
		{"api", "2001:db8::", "zset:api:2001:db8::"},
		{"", "", "zset::"},
		{"a:b", "c", "zset:#Z4OjHqv2jMwGYPk1wIJigr3SJB86gKny0Q1Zrqnrtdg:c"},
		{"api", "~", "zset:api:~"},
		{"api", "\x7f", "zset:api:#Ygv9qjRrCI-0mZjZLxmn6va_wvsK7gFXU5ZtoQKMtzE"},
		{"api", "{x}", "zset:api:#0-vq-WcNco9ZS8y6BjdYNwpV8CfLskI0HZkRwjhjmaE"},
		{"api", "{x", "zset:api:#Pm71fNja9oAueSIyieRJmTPxrXFASyeVnPhtAiUiIgs"},
		{"a#b", "#", "zset:#gYf8j38AcDbf_BmVRLMxZ2MsdzlzN4W73sD7uaLEPKE:#M0NZuQ7-112l8K2h1eayVvSmvQrufrOcD5AYKgIf_Is"},
		{"api", strings.Repeat("k", 64), "zset:api:" + strings.Repeat("k", 64)},
		{"api", strings.Repeat("k", 65), "zset:api:#85zcJYR1jJnPgcH0HSVy9U4XBmr__J0Yeur-X3y-ISI"},
		{strings.Repeat("z", 65), "k", "zset:#V2hfXkPdrBVn9NQEw1fES6twdEuLavYAl2A4kXDFwGI:k"},
	} {
		got := string(engine.AppendKey(nil, &window.Charge{Zone: c.zone, Key: c.key, Algorithm: window.Zset{}}))
		if got != c.want {
			t.Errorf("AppendKey(%q, %q) = %s, want %s", c.zone, c.key, got, c.want)
		}
	}
}

// TestMostFields has the largest number of fields of a charge, and one more.
func TestMostFields(t *testing.T) {
	c := window.Charge{Algorithm: window.Stream{}, Policies: []window.Policy{{Limit: 1, Window: time.Second}}, Fields: make([]string, 2*window.MaxFields)}
	if err := engine.CheckCharges([]window.Charge{c}); err != nil {
		t.Errorf("%d fields: %v", window.MaxFields, err)
	}
	c.Fields = append(c.Fields, "", "")
	if err := engine.CheckCharges([]window.Charge{c}); !errors.Is(err, window.ErrInvalid) {
		t.Errorf("%d fields: %v, want ErrInvalid", window.MaxFields+1, err)
	}
}
