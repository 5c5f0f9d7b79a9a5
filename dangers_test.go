package slidingwindow

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestDangersAreToldOnce(t *testing.T) {
	w := &lookout{name: "dangers"}
	for i, step := range []struct {
		memory       *window.ServerMemory
		evicts, high bool
	}{
		{nil, false, false},
		{&window.ServerMemory{Used: 100, Policy: "allkeys-lru"}, false, false}, // without a maximum nothing is dropped
		{&window.ServerMemory{Used: 100, Max: 1000, Policy: "noeviction"}, false, false},
		{&window.ServerMemory{Used: 100, Max: 1000, Policy: "volatile-ttl"}, true, false},
		{&window.ServerMemory{Used: 800, Max: 1000, Policy: "volatile-ttl"}, true, true},
		{&window.ServerMemory{Used: 750, Max: 1000, Policy: "noeviction"}, false, true},
		{&window.ServerMemory{Used: 699, Max: 1000, Policy: "noeviction"}, false, false},
	} {
		w.note(window.Description{Memory: step.memory})
		if w.evicts != step.evicts || w.high != step.high {
			t.Errorf("step %d: evicts %t, high %t, want %t, %t", i, w.evicts, w.high, step.evicts, step.high)
		}
	}
}
