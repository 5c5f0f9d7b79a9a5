package replay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/series"
)

// suggestOptions are those of a suggestion in tests.
func suggestOptions(key string, logs ...string) replay.SuggestOptions {
	return replay.SuggestOptions{
		Logs: logs, Key: key, Windows: []time.Duration{time.Second, time.Minute}, Top: 5, Keys: true, Reorder: time.Minute, Memory: 64 << 20,
	}
}

// busy is a log of an hour: 400 clients with one request each 10 s for a while, and one that sends 20 a second.
func busy() string {
	var b strings.Builder
	for i := range 20_000 {
		at := start + float64(i)*0.18
		line := logged(at, `"X-User":["anna"]`, "")
		line = strings.ReplaceAll(line, "192.0.2.1", fmt.Sprintf("2001:db8:0:%x::%x", i%400, i))
		b.WriteString(line)
		if i%1000 == 999 {
			for j := range 40 {
				b.WriteString(strings.ReplaceAll(logged(at+float64(j)*0.004, "", ""), `"uri":"/"`, `"uri":"/login"`))
			}
		}
	}
	return b.String()
}

// A suggestion leaves clients alone that are like most, and its zone loads. Addresses of one network are one key.
func TestSuggest(t *testing.T) {
	log := file(t, "access.log", busy())
	s, err := replay.Suggest(suggestOptions("client_ip", log))
	if err != nil {
		t.Fatal(err)
	}
	if s.Keys != 401 || s.Requests != 20_800 || len(s.Pair) != 2 || s.Denied.Keys != 1 || s.Top[0].Key != "192.0.2.1" {
		t.Errorf("got %d keys, %d requests, pair %v, denied %+v, top %+v", s.Keys, s.Requests, s.Pair, s.Denied, s.Top)
	}
	report, err := replay.Run(options(file(t, "Caddyfile", "http://example.com {\n"+s.Zone+"respond ok\n}\n"), log))
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Zone)
	}
	z := report.Zones[0]
	if z.Zone != "per_client" || z.Enforce != "shadow" || z.Denied != s.Denied.Requests || z.ShadowDenied != z.Denied || z.Affected != 1 || z.Keys != 401 {
		t.Errorf("the replay of the suggested zone: %+v, want %d denied", z, s.Denied.Requests)
	}
}

// Keys that do not fit into the memory end the run, whichever way they are told.
func TestSuggestOutOfMemory(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		b.WriteString(strings.ReplaceAll(logged(start+float64(i), "", ""), "192.0.2.1", fmt.Sprintf("192.0.%d.%d", i/250, i%250)))
	}
	log := file(t, "access.log", b.String())
	for _, key := range []string{"client_ip", "{client_ip}{host}"} {
		o := suggestOptions(key, log)
		o.Memory = 64 << 10
		if _, err := replay.Suggest(o); !errors.Is(err, series.ErrMemory) {
			t.Errorf("--key %s: got %v, want %v", key, err, series.ErrMemory)
		}
	}
}

// Any key and any matcher of a zone may tell which requests count.
func TestSuggestByMatch(t *testing.T) {
	log := file(t, "access.log", busy())
	o := suggestOptions("header.X-User", log)
	s, err := replay.Suggest(o)
	if err != nil || s.Keys != 1 || s.Requests != 20_000 || s.Name != "per_X_User" {
		t.Errorf("by a field: %v, %+v", err, s)
	}
	o = suggestOptions("{client_ip}{host}", log)
	o.Match = []string{"path /login", "method GET"}
	if s, err = replay.Suggest(o); err != nil || s.Keys != 1 || s.Requests != 800 || !strings.Contains(s.Zone, "\t\tmatch {\n\t\t\tpath /login\n\t\t\tmethod GET\n\t\t}\n") {
		t.Errorf("of some requests: %v, %+v", err, s)
	}
	for key, want := range map[string]string{
		"header.Authorization": "access.log:1: zone suggested asks for authorization, which the log has redacted",
		"client_id":            "client_id",
		"http.request.nothing": "{http.request.nothing} is not a placeholder of Caddy",
	} {
		_, err := replay.Suggest(suggestOptions(key, file(t, "access.log", logged(start, `"Authorization":["REDACTED"]`, ""))))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("key %s: got %v, want %q in it", key, err, want)
		}
	}
	o = suggestOptions("client_ip", log)
	o.Match = []string{"nothing /login"}
	if _, err := replay.Suggest(o); err == nil || !strings.Contains(err.Error(), "--match nothing /login: getting matcher module 'nothing'") {
		t.Errorf("got %v", err)
	}
}
