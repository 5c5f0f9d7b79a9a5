package promises

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/request"
)

// TestEvents holds the names of the events that Caddyfiles subscribe to.
func TestEvents(t *testing.T) {
	hold(t, "events", []string{events.Alert, events.Resolved, events.Away, events.Back, events.Override, events.Enforce, events.Memory, events.Banned, events.BanLifted})
}

// TestSpans holds the attributes of spans, by which operators search their traces.
func TestSpans(t *testing.T) {
	var names []string
	for _, name := range request.Attributes {
		names = append(names, string(name))
	}
	hold(t, "spans", names)
}
