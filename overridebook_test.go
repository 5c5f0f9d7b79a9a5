package slidingwindow

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// bookOf returns a book of a process of its own, on a store and a storage.
func bookOf(t *testing.T, h *Handler, storage overridestore.Storage) *overrideBook {
	t.Helper()
	b := newOverrideBook(h.guard.store)
	b.begin(nil, storage)
	t.Cleanup(func() { b.end(nil) })
	return b
}

func denied(key string) overrides.Record {
	r := keyed(key)
	r.Deny = true
	return r
}

// With the memory store, overrides survive a restart: a change is in Caddy's storage before it holds. One that
// cannot be written changes nothing.
func TestOverridesSurviveARestart(t *testing.T) {
	h, _ := newHandler(t, zoneHandler(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, ""))
	storage := new(mapStorage)
	before := bookOf(t, h, storage)
	setRecords(t, before, denied("anna"))
	want, _ := before.current()
	for name := range storage.files {
		if !strings.HasPrefix(name, "sliding_window/") || !strings.HasSuffix(name, "/overrides.json") || strings.Count(name, "/") != 2 {
			t.Errorf("file %s", name)
		}
	}
	storage.fails = errors.New("disk full")
	_, err := before.change(t.Context(), "", func([]overrides.Record) ([]overrides.Record, error) { return nil, nil })
	if c, _ := before.current(); !errors.Is(err, window.ErrUnavailable) || c.Version != want.Version {
		t.Errorf("disk full: got %v, version %s", err, c.Version)
	}
	storage.fails = nil
	setRecords(t, before, denied("anna"), denied("otto"))
	want, _ = before.current()
	if c, _ := bookOf(t, h, storage).current(); c.Version != want.Version || len(c.Records) != 2 {
		t.Errorf("after a restart: got %+v, want %+v", c, want)
	}
}

// Two Caddys change the overrides of one Redis at the same time: nothing is lost. A Redis that is away leaves the
// last copy in force, also after a restart; so does one that has lost them, until a change writes all again.
func TestOverridesOnRedis(t *testing.T) {
	server := redistest.Start(t)
	h, _ := newHandler(t, zoneHandler(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, `,"store":{"module":"redis","address":["`+server.Addr+`"],"timeout":"2s"}`))
	storages := []*mapStorage{new(mapStorage), new(mapStorage)}
	a, b := bookOf(t, h, storages[0]), bookOf(t, h, storages[1])
	add := func(book *overrideBook, key string) error {
		r := denied(key)
		r.Zone = zoneName(t)
		if err := r.Complete(time.Now()); err != nil {
			return err
		}
		_, err := book.change(t.Context(), "", func(all []overrides.Record) ([]overrides.Record, error) { return append(all, r), nil })
		return err
	}
	count := func(book *overrideBook, want int, wantLost bool) {
		t.Helper()
		book.look(t.Context())
		if c, lost := book.current(); len(c.Records) != want || lost != wantLost {
			t.Errorf("got %d overrides, lost %v, want %d, %v", len(c.Records), lost, want, wantLost)
		}
	}
	done := make(chan error)
	for i, book := range []*overrideBook{a, b} {
		go func() {
			for n := range 5 {
				if err := add(book, strings.Repeat("k", 1+2*n+i)); err != nil && !errors.Is(err, errOverridesChanged) {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	a.look(t.Context())
	c, _ := a.current()
	all := len(c.Records)
	if all < 6 {
		t.Errorf("only %d of 10 changes were made", all)
	}
	count(b, all, false)

	if err := server.Client(t).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	count(a, all, true)
	count(bookOf(t, h, storages[1]), all, true)
	if err := add(b, "one more"); err != nil {
		t.Error(err)
	}
	count(a, all+1, false)
	server.Kill()
	count(a, all+1, false)
	count(bookOf(t, h, storages[0]), all+1, false)
	if err := add(a, "away"); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("away: got %v", err)
	}
	count(a, all+1, false)
}

// A set of an override is an event, which holds no key.
func TestOverrideEvent(t *testing.T) {
	take := heard(t)
	h, _ := newHandler(t, zoneHandler(t, ofKey+`"limits":[{"max":2,"window":"1h"}]`, ""))
	runHandler(t, h, new(mapStorage))
	own := []*runningZone{h.newRunningZone(h.Zones[0])}
	running.add(own)
	defer running.remove(own)
	body := `{"zone":"` + zoneName(t) + `","key":"anna","deny":true,"until":"2099-01-01T00:00:00Z","reason":"abuse"}`
	r := httptest.NewRequest(http.MethodPost, "/sliding_window/overrides/set", nil)
	if _, _, err := setOverrides(r, []byte(body)); err != nil {
		t.Fatal(err)
	}
	all := take()
	if len(all) != 1 || all[0].Name != events.Override || all[0].Data["zone"] != zoneName(t) || all[0].Data["change"] != "set" || all[0].Data["reason"] != "abuse" {
		t.Errorf("events %v, want one of the override", all)
	}
	if text := fmt.Sprint(all); strings.Contains(text, "anna") {
		t.Errorf("an event holds the key: %s", text)
	}
}

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

// Sites can serve before the app starts: zones have what Caddy's storage has by then.
func TestOverridesBeforeTheStart(t *testing.T) {
	h, _ := newHandler(t, zoneHandler(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, ""))
	storage := new(mapStorage)
	setRecords(t, bookOf(t, h, storage), denied("anna"))
	b := newOverrideBook(h.guard.store)
	b.foresee(h.newRunningZone(h.Zones[0]), storage)
	if got := serve(t, get("X-Key", "anna"), h).Code; got != http.StatusTooManyRequests {
		t.Errorf("anna, who is denied: %d", got)
	}
	if got := serve(t, get("X-Key", "otto"), h).Code; got != http.StatusNoContent {
		t.Errorf("otto: %d", got)
	}
}
