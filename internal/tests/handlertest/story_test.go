package handlertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// A line of the log says what an override does, for which kind of keys, until when, who has set it and why. The line of one
// that is deleted or ends, and that of a reset, say the same. Keys are in the log with log_key only.
func TestLogTellsTheStory(t *testing.T) {
	for _, logsKeys := range []bool{false, true} {
		t.Run(fmt.Sprint("log_key ", logsKeys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx, logs := NewObservedByDefault(t, zap.InfoLevel, OfZone(t, ofKey+TwoAnHour, fmt.Sprintf(`,"log_key":%t`, logsKeys)))
				Start(t, ctx)
				post := func(path, rest string) string {
					t.Helper()
					answer := Admin(t, http.MethodPost, path, `{"zone":"`+ZoneName(t)+`",`+rest+`}`)
					if strings.Contains(answer, `"error"`) || !strings.HasPrefix(answer, "{") {
						t.Fatalf("%s %s: %s", path, rest, answer)
					}
					return answer
				}
				want := func(message, key string, fields map[string]any) {
					t.Helper()
					fields["zone"] = ZoneName(t)
					if logsKeys && key != "" {
						fields["key"] = key
					}
					for _, line := range logs.All() { // these differ each time
						for i, f := range line.Context {
							if f.Key == "id" || f.Key == "version" || f.Key == "client" {
								line.Context[i] = zap.Skip()
							}
						}
					}
					wantLine(t, logs, message, fields)
					logs.TakeAll()
				}
				until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
				for _, c := range []struct{ selector, kind, key, limit, effect string }{
					{`"key":"anna"`, "key", "anna", `"limits":[{"max":600,"window":"1m"},{"max":2000,"window":"1d"}]`, "600 in 1m, 2000 in 24h"},
					{`"values":["bert"]`, "key", "bert", `"factor":2.5`, "times 2.5"},
					{`"cidr":"198.51.100.0/24"`, "cidr", "198.51.100.0/24", `"deny":true`, "deny"},
					{`"pattern":"c*"`, "pattern", "c*", `"deny":true`, "deny"},
					{`"all":true`, "all", "", `"exempt":true`, "exempt"},
				} {
					post("overrides/set", c.selector+","+c.limit+`,"ttl":"1h","by":"otto","reason":"TICKET-7"`)
					want("override was set", c.key, map[string]any{"effect": c.effect, "for": c.kind, "until": until, "by": "otto", "reason": "TICKET-7"})
				}
				post("overrides/delete", `"pattern":"c*","by":"emma","reason":"TICKET-8"`)
				want("override was deleted", "c*", map[string]any{"effect": "deny", "for": "pattern", "until": until, "by": "emma", "reason": "TICKET-8"})
				post("reset", `"key":"anna","by":"otto","reason":"TICKET-9"`)
				want("counter was reset by an operator", "anna", map[string]any{"done": true, "by": "otto", "reason": "TICKET-9"})
				post("overrides/delete", `"values":["bert"]`)
				post("overrides/delete", `"cidr":"198.51.100.0/24"`)
				post("overrides/delete", `"all":true`)
				logs.TakeAll()
				time.Sleep(time.Hour + 2*time.Second)
				want("override has ended", "anna", map[string]any{"effect": "600 in 1m, 2000 in 24h", "for": "key", "until": until, "by": "otto", "reason": "TICKET-7"})
				time.Sleep(time.Hour)
				if logs.Len() > 0 {
					t.Errorf("more lines: %v", logs.All())
				}
			})
		})
	}
}

// A reset says why in 200 bytes at most.
func TestResetReasonIsShort(t *testing.T) {
	_, ctx := New(t, OfZone(t, TwoAnHour, ``))
	Start(t, ctx)
	long := strings.Repeat("x", 201)
	for _, field := range []string{"reason", "by"} {
		answer := Admin(t, http.MethodPost, "reset", fmt.Sprintf(`{"zone":%q,%q:%q}`, ZoneName(t), field, long))
		if answer != field+": longer than 200 bytes" {
			t.Errorf("%s: got %s", field, answer)
		}
	}
	if answer := told[control.Reset](t, http.MethodPost, "reset", `{"zone":"`+ZoneName(t)+`","key":"192.0.2.1","reason":"`+long[1:]+`"}`); !answer.Done {
		t.Errorf("got %+v", answer)
	}
}
