package slidingwindow

import "testing"

func TestAlertIsRefused(t *testing.T) {
	for want, a := range map[string]*Alert{
		``: {Denied: "0.5%", Over: "1h", Min: "1"},
		`alert: denied "ten" is not a percentage; write one, such as 10%`:         {Denied: "ten"},
		`alert: denied 0%: must be above 0% and at most 100%`:                     {Denied: "0%"},
		`alert: denied 101%: must be above 0% and at most 100%`:                   {Denied: "101%"},
		`alert: denied NaN%: must be above 0% and at most 100%`:                   {Denied: "NaN%"},
		`alert: denied 0.1: the sign is missing; write a percentage, such as 10%`: {Denied: "0.1"},
		`alert: over 9s: must be from 10s to 1h`:                                  {Over: "9s"},
		`alert: over 2h: must be from 10s to 1h`:                                  {Over: "2h"},
		`alert: over: "soon" is not a duration`:                                   {Over: "soon"},
		`alert: min 0: must be 1 or more`:                                         {Min: "0"},
		`alert: min "many" is not a whole number`:                                 {Min: "many"},
	} {
		_, err := a.rule()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want && (want == "" || len(got) < len(want) || got[:len(want)] != want) {
			t.Errorf("%+v: got %q, want %q", *a, got, want)
		}
	}
}

// Alerts that mean the same are the same zone, however they are written.
func TestAlertIsPlain(t *testing.T) {
	for _, a := range []Alert{{}, {Denied: "10%", Over: "1m", Min: "100"}, {Denied: "10.0%", Over: "60s", Min: "0100"}} {
		if got := *a.plain(); got != (Alert{}) {
			t.Errorf("%+v is %+v, want the defaults", a, got)
		}
	}
	if got, want := *(&Alert{"7.50%", "90s", "5"}).plain(), (Alert{"7.5%", "1m30s", "5"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
