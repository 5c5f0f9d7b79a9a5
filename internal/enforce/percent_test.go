package enforce

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// A percentage is one of the keys, and a higher one has the keys of a lower one.
func TestEnforcedShare(t *testing.T) {
	const keys = 10_000
	kinds := map[string]func(i int) string{
		"addresses": func(i int) string { return fmt.Sprintf("198.51.%d.%d", i/250, i%250) },
		"networks":  func(i int) string { return fmt.Sprintf("2001:db8:%x::/64", i) },
		"numbers":   strconv.Itoa,
		"long keys": func(i int) string { return strings.Repeat("k", 300) + strconv.Itoa(i) },
	}
	for kind, key := range kinds {
		was := make([]bool, keys)
		for percent := int64(None); percent <= All; percent++ {
			in := 0
			for i := range keys {
				is := IsEnforced("logins", key(i), percent)
				if was[i] && !is {
					t.Fatalf("%s: %s is in at %d%%, and not at %d%%", kind, key(i), percent-1, percent)
				}
				if was[i] = is; is {
					in++
				}
			}
			if share := float64(in) * 100 / keys; share < float64(percent)-1.5 || share > float64(percent)+1.5 {
				t.Errorf("%s: %d%% are %.2f%% of the keys", kind, percent, share)
			}
		}
	}
	same := 0
	for i := range keys {
		if IsEnforced("logins", strconv.Itoa(i), 50) == IsEnforced("api", strconv.Itoa(i), 50) {
			same++
		}
	}
	if same < keys*45/100 || same > keys*55/100 {
		t.Errorf("%d of %d keys are in or out in both zones", same, keys)
	}
}

// Every Caddy has to come to the same. SHA-256 of the zone, a zero byte and the key decides, so that
// these never change:
//
//	printf 'logins\0%s' 192.0.2.1 | sha256sum | cut -c1-8   # b41743d3: 70 % of 2^32
func TestEnforcedShareIsFixed(t *testing.T) {
	for key, first := range map[string]int64{"192.0.2.1": 71, "192.0.2.2": 64, "": 71} {
		for percent := int64(None); percent <= All; percent++ {
			if got, want := IsEnforced("logins", key, percent), percent >= first; got != want {
				t.Errorf("key %q at %d%%: got %v, want %v", key, percent, got, want)
				break
			}
		}
	}
}

// A percentage may be written without its sign, unless the number may mean something else.
func TestPercent(t *testing.T) {
	for word, want := range map[string]string{
		"10": "10%", "10%": "10%", "2": "2%", "99": "99%", "100": "on", "100%": "on", "1%": "1%", "on": "on", "shadow": "shadow",
		"0": `enforce "0" is unknown; write shadow to deny no request`, "1": `enforce "1" is unknown; write on, or 1% for one key of a hundred`,
		"0%": "enforce 0%: must be from 1% to 100%; write shadow to deny no request", "101": "enforce 101: must be from 1% to 100%", "-5": "enforce -5: must be from 1% to 100%",
		"2.5": `enforce "2.5" is unknown; use one of on, shadow, mark, or a percentage such as 25%`,
	} {
		got, err := Percent(word)
		if text := Word(got); err == nil && text != want || err != nil && err.Error() != want {
			t.Errorf("%s: got %s, %v, want %s", word, text, err, want)
		}
	}
}
