package handlertest

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestUsedIsNotCut makes an answer cost more than its limit: inspect tells all that is used, under each
// limit, and under an override with a higher limit, too.
func TestUsedIsNotCut(t *testing.T) {
	address := redistest.Start(t).Addr
	for module, options := range map[string]string{"memory": "", "redis": `"address":["` + address + `"],"timeout":"10s"`} {
		for name, algorithm := range map[string]string{
			"zset": `"zset"`, "log": `"log"`, "stream": `"stream"`, "slices": `"slices"`, "count": `"slices","count":10`,
			"weighted": `"slices","weighted":true`, "adaptive": `"slices","adaptive":{"min":"30s","max":"2m"}`,
			"layers": `"slices","layers":{"coarse":"1m","fine":"10s"}`,
		} {
			t.Run(module+"."+name, func(t *testing.T) {
				zone, raw := ZoneName(t), `{"module":"`+module+`"}`
				if options != "" {
					raw = `{"module":"` + module + `",` + options + `}`
				}
				h, ctx := operated(t, fmt.Sprintf(`{"zones":[{"name":%q,%s"limits":[{"max":100,"window":"1h"},{"max":1000,"window":"2h"}],
					"algorithm":{"name":%s},"settle":{"header":"X-Units"}}],"store":%s}`, zone, ofKey, algorithm, raw))
				store := openstore.Acquire(storeOf(t, ctx, module, "{"+options+"}"), nil, false)
				defer store.Release(false)
				a := &tokens{h, store, []string{zone}}
				a.ask(t, "key", 1, "500")
				want := func(when string, all ...int64) {
					t.Helper()
					for i, got := range a.used(t, "key") {
						if got != all[i] {
							t.Errorf("%s, limit %d: used %d, want %d", when, i, got, all[i])
						}
					}
				}
				want("after the answer", 500, 500)
				if status, _, _, _ := a.ask(t, "key", 1, "1"); status != http.StatusTooManyRequests {
					t.Errorf("status %d above the limit, want 429", status)
				}
				want("after a denial", 500, 500)
				setRecords(t, overridestest.Limited("key", overrides.RecordLimit{Max: 300, Window: "1h"}))
				want("under an override", 500)
				setRecords(t)
				want("without the override", 500, 500)
			})
		}
	}
}
