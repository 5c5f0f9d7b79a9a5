package slidingwindow

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
)

// A record that a newer version, or somebody else, has put into the store is not applied: it names no
// limit, or no selector, that this version knows.
func TestOverrideOfAnotherVersion(t *testing.T) {
	h, _ := newHandler(t, zoneHandler(t, ofKey+`"limits":[{"max":4,"window":"1h"}]`, ""))
	b := runHandler(t, h, new(mapStorage))
	for what, record := range map[string]overrides.Record{
		"a limit that is not known":    {All: true},
		"a selector that is not known": {Deny: true},
		"a negative factor":            {All: true, Factor: -1},
		"two answers":                  {All: true, Deny: true, Exempt: true},
	} {
		record.ID, record.Zone, record.Created = "other", zoneName(t), time.Now()
		b.mu.Lock()
		b.install(overridestore.Copy{Version: "1-x", Records: []overrides.Record{record}})
		b.mu.Unlock()
		if n := passes(t, h, what, 6); n != 4 {
			t.Errorf("%s: %d passed, want the 4 of the configuration", what, n)
		}
		if m := h.Zones[0].overrides.now.Load(); m == nil || len(m.misfits) != 1 {
			t.Errorf("%s: it is no misfit", what)
		}
	}
}

// A key is stored so that it stays the same key when the record is read again. A key of which the
// placeholder is no part is refused.
func TestOverrideOfAPart(t *testing.T) {
	h, _ := newHandler(t, zoneHandler(t, `"key":"{http.request.host.labels.2}","limits":[{"max":1,"window":"1h"}]`, ""))
	runHandler(t, h, new(mapStorage))
	own := []*runningZone{h.newRunningZone(h.Zones[0])}
	running.add(own)
	defer running.remove(own)
	r, _ := http.NewRequest(http.MethodPost, "/", nil)
	zone := `{"zone":"` + zoneName(t) + `","deny":true,"until":"2099-01-01T00:00:00Z",`
	if _, _, err := setOverrides(r, []byte(zone+`"key":"evil"}`)); err == nil {
		t.Error("a text without a third label is taken as a key")
	}
	if _, _, err := setOverrides(r, []byte(zone+`"key":"evil.example.com"}`)); err != nil {
		t.Fatal(err)
	}
	if h.Zones[0].rule("evil") == nil || h.Zones[0].rule("") != nil {
		t.Errorf("the record decides on evil: %v, on no key: %v", h.Zones[0].rule("evil") != nil, h.Zones[0].rule("") != nil)
	}
}

// The case of a path counts, also in a pattern; that of a host does not.
func TestOverridePatternCase(t *testing.T) {
	for key, want := range map[string]string{"{http.request.uri.path}": "/API/x", "{http.request.host}": "/api/x"} {
		h, _ := newHandler(t, zoneHandler(t, `"key":"`+key+`","limits":[{"max":1,"window":"1h"}]`, ""))
		b := runHandler(t, h, new(mapStorage))
		setRecords(t, b, overrides.Record{Pattern: "/API/*", Deny: true})
		for _, path := range []string{"/API/x", "/api/x"} {
			if got := h.Zones[0].rule(path) != nil; got != (path == want) {
				t.Errorf("%s: the pattern decides on %s: %v", key, path, got)
			}
		}
	}
}

// An order that was under way when another took its place does not come back.
func TestOrderUnderWay(t *testing.T) {
	var e enforce.Sync
	x, y := enforce.NewOrder("shadow", time.Now().Add(time.Hour), ""), enforce.NewOrder("on", time.Now().Add(time.Hour), "")
	if isNew, _ := e.Hear(x); !isNew {
		t.Fatal("the first order is not new")
	}
	e.Order(y)
	e.Sent(y)
	if isNew, _ := e.Hear(x); isNew {
		t.Error("the order before the last one is obeyed again")
	}
	if isNew, _ := e.Hear(y); isNew {
		t.Error("its own order is new")
	}
}

// The field with the cost comes off the answer also where nothing is charged: under an exemption, and
// while the store is away.
func TestStripWithoutCharge(t *testing.T) {
	h, _ := newHandler(t, zoneHandler(t, ofKey+`"limits":[{"max":100,"window":"1h"}],"settle":{"header":"X-Units","strip":true}`, ""))
	b := runHandler(t, h, new(mapStorage))
	free := keyed("free")
	free.Exempt = true
	setRecords(t, b, free)
	next := func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Units", "7")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	for _, key := range []string{"free", "paying"} {
		w := httptest.NewRecorder()
		if err := answerWith(h, w, get("X-Key", key), next); err != nil {
			t.Fatal(err)
		}
		if got := w.Header().Get("X-Units"); got != "" {
			t.Errorf("%s: the client sees X-Units %s", key, got)
		}
	}
}
