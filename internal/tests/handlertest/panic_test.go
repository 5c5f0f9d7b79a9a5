package handlertest

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
)

// allInShadow makes an operator stop all zones from denying.
const allInShadow = `{"all":true,"mode":"shadow","ttl":"1m","reason":"TICKET-9","by":"otto"}`

// A zone that cannot count in shadow lets everything pass when all zones are to be in shadow: requests without a key and keys
// that an override denies, too. The log says so, and its end is one line.
func TestAllInShadowExempts(t *testing.T) {
	for name, option := range map[string]string{
		"count_if": `"count_if":{"status_code":[401]}`,
		"settle":   `"settle":{"usage":"openai"}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				take := heard(t)
				config := OfZone(t, ofKey+`"empty_key":"deny","limits":[{"max":0,"window":"1h"}],`+option, ``)
				h, ctx, logs := NewObservedByDefault(t, zap.InfoLevel, config)
				Start(t, ctx)
				body := `{"zone":"` + ZoneName(t) + `","key":"banned","deny":true}`
				if answer := Admin(t, http.MethodPost, "overrides/set", body); !strings.Contains(answer, `"version"`) {
					t.Fatal(answer)
				}
				want := func(what string, status int) {
					t.Helper()
					for _, key := range []string{"anna", "banned", ""} {
						if w := Serve(t, Get("X-Key", key), h); w.Code != status {
							t.Errorf("%s, key %q: got %d, want %d", what, key, w.Code, status)
						}
					}
				}
				want("as configured", http.StatusTooManyRequests)
				if answer := setEnforce(t, ZoneName(t), "shadow", "15m"); !strings.Contains(answer, "run override set --zone "+ZoneName(t)+" --all --exempt --ttl 15m") {
					t.Errorf("one zone: %s does not say what to do", answer)
				}
				take()
				answer := told[control.Enforced](t, http.MethodPost, "enforce", allInShadow).Zones[0]
				if answer.Enforce != "exempt" || answer.Until == "" || answer.Error != "" || !strings.Contains(answer.Note, "count_if, settle") {
					t.Errorf("answer %+v", answer)
				}
				want("exempt", http.StatusNoContent)
				if z := told[control.Zones](t, http.MethodGet, "zones", "").Zones[0]; z.Enforce != "exempt" || z.EnforceReason != "TICKET-9" {
					t.Errorf("zones: %+v", z)
				}
				if i := inspect(t, ZoneName(t), "anna"); i.Enforce != "exempt" {
					t.Errorf("inspect: %+v", i)
				}
				if all := take(); len(all) != 1 || all[0].Name != events.Enforce || all[0].Data["enforce"] != "exempt" {
					t.Errorf("events %v", all)
				}
				time.Sleep(62 * time.Second)
				synctest.Wait()
				want("when its time is over", http.StatusTooManyRequests)
				wantLine(t, logs, "enforcement of zone was changed by an operator", map[string]any{
					"zone": ZoneName(t), "enforce": "exempt", "until": answer.Until, "by": "otto", "reason": "TICKET-9"})
				wantLine(t, logs, "enforcement of zone has ended: its time is over, and the zone does what is configured", map[string]any{
					"zone": ZoneName(t), "was": "exempt", "by": "otto", "reason": "TICKET-9"})
			})
		})
	}
}
