package handlertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
)

// heard captures the events of the test. Its result returns them.
func heard(t *testing.T) (take func() []events.Event) {
	take, end := events.Capture()
	t.Cleanup(end)
	return take
}

// How a zone is enforced is an event when its time is over, once, whether or not a request comes.
func TestEnforcedEventAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take := heard(t)
		_, ctx := New(t, OfZone(t, TwoAnHour, ``))
		Start(t, ctx)
		setEnforce(t, ZoneName(t), "shadow", "1m")
		if all := take(); len(all) != 1 || all[0].Name != events.Enforce || all[0].Data["enforce"] != "shadow" {
			t.Errorf("got the events %v, want one of the change", all)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if all := take(); len(all) != 0 {
			t.Errorf("got the events %v before the end", all)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		all := take()
		if len(all) != 1 || all[0].Name != events.Enforce || all[0].Data["enforce"] != "config" || all[0].Data["zone"] != ZoneName(t) {
			t.Errorf("got the events %v, want one that the configuration holds again", all)
		}
	})
}

// A zone that is as configured is not changed by config, and no event is sent.
func TestEnforceConfigTwice(t *testing.T) {
	take := heard(t)
	_, ctx := New(t, OfZone(t, TwoAnHour, ``))
	Start(t, ctx)
	for _, c := range []struct {
		mode, ttl string
		events    int
	}{{"config", "", 0}, {"shadow", "1m", 1}, {"config", "", 1}, {"config", "", 0}} {
		if answer := setEnforce(t, ZoneName(t), c.mode, c.ttl); !strings.HasPrefix(answer, "{") {
			t.Error(answer)
		}
		if all := take(); len(all) != c.events {
			t.Errorf("%s: got the events %v, want %d", c.mode, all, c.events)
		}
	}
}

// An alert of a zone that is taken out of the configuration is over: the log and the events say so.
func TestAlertOfAZoneThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take := heard(t)
		h, ctx, logs := NewObservedByDefault(t, zap.InfoLevel, OfZone(t, TwoAnHour+`,"alert":{"denied":"50%","over":"10s","min":"4"}`, ``))
		stop := Start(t, ctx)
		for range 4 {
			Serve(t, Get(), h)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if all := take(); len(all) != 1 || all[0].Name != events.Alert {
			t.Fatalf("got the events %v, want an alert", all)
		}
		stop()
		if err := h.(caddy.CleanerUpper).Cleanup(); err != nil {
			t.Fatal(err)
		}
		if all := take(); len(all) != 1 || all[0].Name != events.Resolved || all[0].Data["zone"] != ZoneName(t) {
			t.Errorf("got the events %v, want that the alert is resolved", all)
		}
		if n := logs.FilterMessageSnippet("alert resolved").FilterField(zap.String("zone", ZoneName(t))).Len(); n != 1 {
			t.Errorf("%d lines say that the alert is resolved, want 1: %v", n, logs.All())
		}
	})
}

// A set of an override is an event, which holds no key.
func TestOverrideEvent(t *testing.T) {
	take := heard(t)
	operated(t, OfZone(t, ofKey+TwoAnHour, ""))
	body := `{"zone":"` + ZoneName(t) + `","key":"anna","deny":true,"until":"2099-01-01T00:00:00Z","reason":"abuse"}`
	if answer := Admin(t, http.MethodPost, "overrides/set", body); !strings.Contains(answer, `"version"`) {
		t.Fatal(answer)
	}
	all := take()
	if len(all) != 1 || all[0].Name != events.Override || all[0].Data["zone"] != ZoneName(t) || all[0].Data["change"] != "set" || all[0].Data["reason"] != "abuse" {
		t.Errorf("events %v, want one of the override", all)
	}
	if text := fmt.Sprint(all); strings.Contains(text, "anna") {
		t.Errorf("an event holds the key: %s", text)
	}
}

// Many overrides that are set at once are one event and one line, so that they push out no other.
func TestManyOverridesAreOneEvent(t *testing.T) {
	take := heard(t)
	_, ctx, logs := NewObservedByDefault(t, zap.InfoLevel, OfZone(t, ofKey+TwoAnHour, ""))
	Start(t, ctx)
	t.Cleanup(func() { Admin(t, http.MethodPost, "overrides/replace", `{"records":[]}`) })
	_ = logs.TakeAll()
	for n, want := range map[int]int{16: 16, 17: 1} {
		var records []string
		for i := range n {
			records = append(records, fmt.Sprintf(`{"zone":%q,"key":"%d of %d","deny":true}`, ZoneName(t), i, n))
		}
		if answer := Admin(t, http.MethodPost, "overrides/set", "["+strings.Join(records, ",")+"]"); !strings.Contains(answer, `"version"`) {
			t.Fatal(answer)
		}
		if all := take(); len(all) != want || all[0].Data["change"] != "set" || (all[0].Data["id"] == "") != (want == 1) {
			t.Errorf("%d overrides: got %d events, want %d: %v", n, len(all), want, all)
		}
		if lines := logs.FilterMessageSnippet("override").All(); len(lines) != want {
			t.Errorf("%d overrides: got %d lines, want %d: %v", n, len(lines), want, lines)
		}
		_ = logs.TakeAll()
	}
}
