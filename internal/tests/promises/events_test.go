package promises

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
)

// TestEvents holds the names of the events that Caddyfiles subscribe to.
func TestEvents(t *testing.T) {
	hold(t, "events", []string{events.Alert, events.Resolved, events.Away, events.Back, events.Override, events.Enforce, events.Memory})
}
