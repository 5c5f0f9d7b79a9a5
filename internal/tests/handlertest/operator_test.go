package handlertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"go.uber.org/zap/zaptest/observer"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// told is what the admin API answers about apps that were started.
func told[T any](t testing.TB, method, path, body string) (answer T) {
	t.Helper()
	if text := Admin(t, method, path, body); json.Unmarshal([]byte(text), &answer) != nil {
		t.Fatalf("%s %s: %s", path, body, text)
	}
	return answer
}

func status(t testing.TB) control.Status {
	t.Helper()
	return told[control.Status](t, http.MethodGet, "status", "")
}

// inspect returns what the next request meets in a zone, with these values of the placeholders of the key.
func inspect(t testing.TB, zone string, values ...string) control.Inspection {
	t.Helper()
	body, err := json.Marshal(control.Selector{Zone: zone, Values: values})
	if err != nil {
		t.Fatal(err)
	}
	return told[control.Inspection](t, http.MethodPost, "inspect", string(body))
}

// used returns the units that count in a zone under its first limit.
func used(t testing.TB, zone string, values ...string) int64 {
	t.Helper()
	return inspect(t, zone, values...).Limits[0].Used
}

// wantLine wants one line of a message, with these fields and perhaps the store.
func wantLine(t testing.TB, logs *observer.ObservedLogs, message string, fields map[string]any) {
	t.Helper()
	lines := logs.FilterMessage(message).All()
	if len(lines) != 1 {
		t.Errorf("%d lines say %q, want 1: %v", len(lines), message, logs.All())
		return
	}
	got := lines[0].ContextMap()
	delete(got, "store")
	if !maps.Equal(got, fields) {
		t.Errorf("%s: got %v, want %v", message, got, fields)
	}
}

// setEnforce enforces a zone in a way, as an operator does, for a time but with the mode config, and returns the answer.
func setEnforce(t testing.TB, zone, mode, ttl string) string {
	t.Helper()
	body := fmt.Sprintf(`{"zone":%q,"mode":%q`, zone, mode)
	if ttl != "" {
		body += fmt.Sprintf(`,"ttl":%q`, ttl)
	}
	return Admin(t, http.MethodPost, "enforce", body+"}")
}
