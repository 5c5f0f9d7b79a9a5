package handlertest

import (
	"net/http"
	"testing"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// An outage is two lines and two events, also where a zone is in shadow, which has connections of its own.
func TestOutageIsTwoLinesWithShadow(t *testing.T) {
	for name, first := range map[string]string{
		"one of two in shadow": `{"name":"first","key":"all","limits":[{"max":1000000,"window":"1h"}]},`,
		"only shadow":          ``,
	} {
		t.Run(name, func(t *testing.T) {
			take, server := heard(t), redistest.Start(t)
			zones := first + `{"name":"watched","key":"all","limits":[{"max":1000000,"window":"1h"}],"enforce":"shadow"}`
			h, ctx, logs := NewObservedByDefault(t, zap.InfoLevel, `{"zones":[`+zones+`],"store":{"module":"redis","address":["`+server.Addr+`"],"timeout":"100ms"}}`)
			Start(t, ctx)
			lines := func(message string) int { return logs.FilterMessage(message).Len() }
			ask := func() {
				if w := Serve(t, Get(), h); w.Code != http.StatusNoContent {
					t.Errorf("got %d", w.Code)
				}
			}
			reached := func() float64 {
				return Metric(t, ctx, "caddy_sliding_window_decisions_total", "zone", "watched", "outcome", "shadow_allowed")
			}
			Poll(t, "the zone in shadow counts", func() bool { ask(); return reached() > 0 })
			server.Kill()
			Poll(t, "the store is away", func() bool { ask(); return lines("store is unavailable; on_error decides until it is back") > 0 })
			for range 30 { // for the other connections to notice
				ask()
			}
			server.Restart(t)
			Poll(t, "the store is back", func() bool { ask(); return lines("store is back") > 0 })
			if away, back := lines("store is unavailable; on_error decides until it is back"), lines("store is back"); away != 1 || back != 1 {
				t.Errorf("%d lines that it is away and %d that it is back: %v", away, back, logs.All())
			}
			if all := take(); len(all) != 2 {
				t.Errorf("events %v", all)
			}
		})
	}
}
