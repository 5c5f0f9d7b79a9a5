package engine_test

import (
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

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

func FuzzAppendKey(f *testing.F) {
	f.Add("zone", "key", "zone", "kez")
	f.Add("a", "b:c", "a:b", "c")
	f.Add("", "", "", "\x00")
	f.Add("{}", "}", "}", "{}")
	f.Add("#", "a", "", "#a")
	f.Add("a", "{", "a", "#Ah-1ltuB5tAr89JYbuOYH-UZ8nXArJyna7zy67QJfZY") // what { is replaced by
	f.Add("\xff", "ü", "\xfe", "u")
	f.Add("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "b")
	f.Fuzz(func(t *testing.T, zone1, key1, zone2, key2 string) {
		name := func(zone, key string, a window.Algorithm) string {
			got := engine.AppendKey([]byte("sw:"), &window.Charge{Zone: zone, Key: key, Algorithm: a})
			if len(got) > 3+len("slices::")+64+64 {
				t.Errorf("AppendKey(%q, %q) has %d bytes", zone, key, len(got))
			}
			for _, b := range got {
				if b <= ' ' || b > '~' || b == '{' || b == '}' {
					t.Errorf("AppendKey(%q, %q) = %q, which holds %q", zone, key, got, b)
				}
			}
			return string(got)
		}
		one, two := name(zone1, key1, window.Zset{}), name(zone2, key2, window.Zset{})
		if same := zone1 == zone2 && key1 == key2; same != (one == two) {
			t.Errorf("AppendKey(%q, %q) = %s and AppendKey(%q, %q) = %s", zone1, key1, one, zone2, key2, two)
		}
		if other := name(zone1, key1, window.Slices{}); other == one || other == two {
			t.Errorf("AppendKey(%q, %q) is %s for two algorithms", zone1, key1, one)
		}
	})
}
