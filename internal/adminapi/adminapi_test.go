package adminapi

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

func TestMain(m *testing.M) { os.Exit(caddyrun.Main(m, func() {})) }

func serve(a API, method, path string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	return w, a.Routes()[0].Handler.ServeHTTP(w, httptest.NewRequest(method, control.Base+path, nil))
}

// The answer to another path names all paths, overrides by one of them. Every path refuses other methods, and a POST
// another content type. No GET changes anything.
func TestEndpoints(t *testing.T) {
	a := New(nil)
	_, unknown := serve(a, http.MethodGet, "other")
	if unknown == nil {
		t.Fatal("another path is served")
	}
	operating, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	named := strings.FieldsFunc(unknown.Error(), func(c rune) bool { return c == ' ' || c == ',' })
	for path, e := range a.endpoints() {
		name := path
		if group, _, ok := strings.Cut(path, "/"); ok {
			if name = group; a.endpoints()[group].serve == nil {
				name += "/list"
			}
		}
		if !strings.Contains(string(operating), "\n| `"+e.method+" "+control.Base+path+"` |") {
			t.Errorf("%s: the table in docs/operating.md has no line on it", path)
		}
		if !slices.Contains(named, name) {
			t.Errorf("%s: %q leaves it out", path, unknown)
		}
		w, err := serve(a, http.MethodDelete, path)
		if err == nil || err.Error() != "method not allowed; use "+e.method || w.Header().Get("Allow") != e.method {
			t.Errorf("DELETE %s: got %v, Allow %q", path, err, w.Header().Get("Allow"))
		}
		if reads := path == "zones" || path == "status" || path == "bans"; reads != (e.method == http.MethodGet) {
			t.Errorf("%s is a %s", path, e.method)
		}
		if e.method == http.MethodGet {
			continue
		}
		if _, err := serve(a, e.method, path); err == nil || err.Error() != "Content-Type: must be application/json" {
			t.Errorf("%s without a content type: got %v", path, err)
		}
	}
}

// A mode in which no zone could be enforced is refused for all zones at once.
func TestEnforceOfAllZones(t *testing.T) {
	for body, want := range map[string]string{
		`{"all":true,"mode":"shadw","ttl":"1h"}`: "mode: must be on, shadow, mark, config, or a whole percentage such as 25%",
		`{"all":true,"mode":"101%","ttl":"1h"}`:  "mode: must be on, shadow, mark, config, or a whole percentage such as 25%",
		`{"all":true,"mode":"25%","ttl":"1h"}`:   "",
		`{"all":true,"mode":"config"}`:           "",
	} {
		r := httptest.NewRequest(http.MethodPost, control.Base+"enforce", nil)
		if _, _, err := setEnforcement(r, []byte(body)); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

// Whether a request passes is known if a zone denies it, or if all that are known admit it and no other may count it.
func TestWouldPass(t *testing.T) {
	yes, no := true, false
	passes, denies := control.EvaluatedZone{Inspection: &control.Inspection{WouldPass: &yes}}, control.EvaluatedZone{Inspection: &control.Inspection{WouldPass: &no}}
	unknown, shadow := control.EvaluatedZone{Unknown: []string{"{http.request.uuid}"}}, control.EvaluatedZone{Shadow: true, Inspection: &control.Inspection{WouldPass: &no}}
	keyless := control.EvaluatedZone{EmptyKey: "deny"}
	for _, c := range []struct {
		zones []control.EvaluatedZone
		want  string
	}{
		{nil, "true"},
		{[]control.EvaluatedZone{passes, shadow}, "true"},
		{[]control.EvaluatedZone{passes, denies}, "false"},
		{[]control.EvaluatedZone{passes, keyless}, "false"},
		{[]control.EvaluatedZone{passes, unknown}, "unknown"},
		{[]control.EvaluatedZone{unknown, denies}, "false"},
	} {
		got := "unknown"
		if passes := wouldPass(c.zones); passes != nil {
			got = map[bool]string{true: "true", false: "false"}[*passes]
		}
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.zones, got, c.want)
		}
	}
}
