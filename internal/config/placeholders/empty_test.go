package placeholders

import (
	"testing"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
)

// Each option that came out empty is counted each time, and in the log once a minute with the placeholder that has no
// value, as a Caddyfile has it. An empty key that is expected is neither.
func TestEmpty(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	repl := caddy.NewEmptyReplacer()
	repl.Set("a", "1")
	uses := []Use{{"key", "http.vars.client_ip"}, {"limit", "a"}, {"limit", "http.vars.b"}, {"cost", "c"}}
	due := new(Due)
	e, second := NewEmpty(t.Name(), uses, true, due), NewEmpty(t.Name(), uses, true, due) // in two handlers
	for range 2 {
		e.Note(zap.New(core), NoKey|NoLimit, nil, repl)
		second.Note(zap.New(core), NoCost, nil, repl)
	}
	for option, want := range map[string]float64{"key": 0, "limit": 2, "cost": 2} {
		if n, _ := metricstest.Find(t, metricstest.Of(metrics.NoValueTotal), "caddy_sliding_window_empty_values_total", "zone", t.Name(), "option", option); n != want {
			t.Errorf("%s: counted %v, want %v", option, n, want)
		}
	}
	want := map[string]string{"limit": "{vars.b}", "cost": "{c}"}
	for _, entry := range logs.All() {
		fields := entry.ContextMap()
		option, _ := fields["option"].(string)
		if fields["placeholder"] != want[option] {
			t.Errorf("got %v, want one line each of %v", fields, want)
		}
		delete(want, option)
	}
	if len(want) > 0 {
		t.Errorf("the log has no line of %v", want)
	}
	*due = Due{} // a minute later
	logs.TakeAll()
	e.Note(zap.New(core), NoLimit, nil, repl)
	second.Note(zap.New(core), NoLimit, nil, repl)
	if n := logs.Len(); n != 1 {
		t.Errorf("got %d lines after a minute, want 1", n)
	}
}
