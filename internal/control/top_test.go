package control_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

func TestDecodeTop(t *testing.T) {
	for body, want := range map[string]string{
		`{"zone":"z"}`: "",
		`{"zone":"z","store":"memory","by":"charged","count":256}`: "",
		`{"zone":"z","by":"denied","count":1}`:                     "",
		`{}`:                                                       "zone: required; GET /sliding_window/zones lists the zones",
		`[]`:                                                       "body: must be an object with zone",
		`{"zone":"z","by":"secret"}`:                               "by: must be denied or charged",
		`{"zone":"z","by":7773}`:                                   "by: must be a string",
		`{"zone":"z","count":0}`:                                   "count: must be from 1 to 256",
		`{"zone":"z","count":257}`:                                 "count: must be from 1 to 256",
		`{"zone":"z","count":"secret"}`:                            "count: must be a whole number",
		`{"zone":"z","count":1.5}`:                                 "count: must be a whole number",
		`{"zone":"z","key":"secret"}`:                              "body: unknown field; use zone, store, by, tier and count",
		`{"zone":"z","count":10} {"zone":1}`:                       "body: more than one JSON value; send one object",
	} {
		q, err := control.DecodeTop([]byte(body))
		got := ""
		if err != nil {
			got = err.Error()
		} else if q.By == "" || q.Count == nil {
			t.Errorf("%s was read as %+v", body, q)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
	if q, err := control.DecodeTop([]byte(`{"zone":"z"}`)); err != nil || q.By != "denied" || *q.Count != 10 {
		t.Errorf("by default %+v, %v", q, err)
	}
}

func FuzzDecodeTop(f *testing.F) {
	for _, body := range []string{`{"zone":"z"}`, `{"zone":"z","by":"charged","count":20,"store":"memory"}`, `{"count":null}`, `{"count":1e99}`, `nul`, "{\"zone\":\"\xff\"}"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := control.DecodeTop(body)
		if err != nil {
			if field, _, ok := strings.Cut(err.Error(), ":"); !ok || len(err.Error()) > 120 || !slices.Contains([]string{"body", "zone", "store", "by", "count"}, field) {
				t.Errorf("%q: the error is %q", body, err)
			}
			return
		}
		if q.Zone == "" || q.By != "denied" && q.By != "charged" || *q.Count < 1 || *q.Count > control.MaxTop {
			t.Errorf("%q was read as %+v", body, q)
		}
	})
}
