package handlertest

import "testing"

// wantRefused wants the error of a zone of a handler, or none.
func wantRefused(t *testing.T, what string, err error, want, zone string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if want != "" {
		want = "provision http.handlers.sliding_window: zone " + zone + ": " + want
	}
	if got != want {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

func TestAlertIsRefused(t *testing.T) {
	_, ctx := New(t, OfZone(t, TwoAnHour, ""))
	for alert, want := range map[string]string{
		`"denied":"0.5%","over":"1h","min":"1"`: ``,

		`"denied":"ten"`:  `alert: denied "ten" is not a percentage; write one, such as 10%`,
		`"denied":"0%"`:   `alert: denied 0%: must be above 0% and at most 100%`,
		`"denied":"101%"`: `alert: denied 101%: must be above 0% and at most 100%`,
		`"denied":"NaN%"`: `alert: denied NaN%: must be above 0% and at most 100%`,
		`"denied":"0.1"`:  `alert: denied 0.1: the sign is missing; write a percentage, such as 10%`,
		`"over":"9s"`:     `alert: over 9s: must be from 10s to 1h`,
		`"over":"2h"`:     `alert: over 2h: must be from 10s to 1h`,
		`"over":"soon"`:   `alert: over: "soon" is not a duration, such as 90s, 5m or 1d`,
		`"min":"0"`:       `alert: min 0: must be 1 or more`,
		`"min":"many"`:    `alert: min "many" is not a whole number`,
	} {
		_, err := Another(ctx, `{"zones":[{"name":"alerted",`+TwoAnHour+`,"alert":{`+alert+`}}]}`)
		wantRefused(t, alert, err, want, "alerted")
	}
}

// What only JSON can say, and is refused.
func TestSettleRefusedInJSON(t *testing.T) {
	_, ctx := New(t, OfZone(t, TwoAnHour, ""))
	for settle, want := range map[string]string{
		`"usage":"openai","strip":true`:      "settle: strip removes the field of header, but no header is named; take out strip",
		`"usage":"openai","reserve_json":[]`: "settle: reserve_json: no field to estimate from; name one, such as max_tokens",
		`"usage":"mistral"`:                  "settle: usage \"mistral\" is unknown; use one of openai, anthropic",
	} {
		_, err := Another(ctx, `{"zones":[{"name":"z","limits":[{"max":5,"window":"1m"}],"settle":{`+settle+`}}]}`)
		wantRefused(t, settle, err, want, "z")
	}
}
