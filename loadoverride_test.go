package slidingwindow

import (
	"net/http"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// The load scales what is configured, and an override comes after it: its limits are not scaled, and
// its factor multiplies the scaled ones.
func TestLoadThenOverride(t *testing.T) {
	p := newPressure(t)
	h := p.loaded(t, zoneHandler(t, ofKey+`"limits":[{"max":100,"window":"1m"}],`+cpuLoad, ""))
	b := runHandler(t, h, new(mapStorage))
	fixed, doubled := keyed("fixed"), keyed("doubled")
	fixed.Limits = []overrides.Limit{{Max: 50, Window: "1m"}}
	doubled.Factor = 2
	setRecords(t, b, fixed, doubled)
	p.at(1, 3)
	for key, want := range map[string]int{"fixed": 50, "doubled": 60, "none": 30} {
		if n := passes(t, h, key, 120); n != want {
			t.Errorf("%s: %d passed under load, want %d", key, n, want)
		}
		r := get("X-Key", key)
		w := serve(t, r, h)
		source, problem := "override", "#quota-exceeded"
		if key == "none" {
			source, problem = "load", "#temporary-reduced-capacity"
		}
		if got := expand(r, "{http.sliding_window."+zoneName(t)+".source}"); got != source {
			t.Errorf("%s: source %q, want %q", key, got, source)
		}
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), problem) {
			t.Errorf("%s: %d %s, want %s", key, w.Code, w.Body.String(), problem)
		}
	}
}
