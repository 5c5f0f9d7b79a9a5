package cli

import (
	"fmt"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// A key that a full list lacks may have as much there as the last of the list: COUNT stays the most that a key has, and
// COUNT less ERROR the least.
func TestMergeTop(t *testing.T) {
	full := control.Top{Total: 1000, Since: "2026-01-02T03:04:05Z"}
	for i := range control.MaxTop {
		full.Keys = append(full.Keys, control.TopKey{Key: fmt.Sprint(i), Count: int64(1000 - i), Error: 1})
	}
	short := control.Top{Total: 9, Since: "2026-01-02T03:04:04Z", Keys: []control.TopKey{{Key: "0", Count: 6}, {Key: "other", Count: 3, Error: 2}}}
	merged := mergeTop([]answered[control.Top]{{T: full}, {T: short}}, control.MaxTop+1)
	last := int64(1000 - control.MaxTop + 1)
	want := map[string]control.TopKey{"0": {Key: "0", Count: 1006, Error: 1}, "1": {Key: "1", Count: 999, Error: 1}, "other": {Key: "other", Count: 3 + last, Error: 2 + last}}
	for _, k := range merged.Keys {
		if w, ok := want[k.Key]; ok && k != w {
			t.Errorf("got %+v, want %+v", k, w)
		}
		delete(want, k.Key)
	}
	if len(want) > 0 || merged.Total != 1009 || merged.Since != short.Since || merged.Keys[0].Key != "0" {
		t.Errorf("got %+v; missing %v", merged, want)
	}
}
