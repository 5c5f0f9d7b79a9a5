package events

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// heard notes which events the handlers of configurations hear of, in which order.
type heard struct {
	mu    sync.Mutex // guards what follows
	names []string
	under int // events under way
	most  int
}

// configuration returns a sender whose handlers take a time for each event.
func (h *heard) configuration(name string, takes time.Duration) *Sender {
	return newSender(func(e Event) {
		h.mu.Lock()
		h.names = append(h.names, name+" "+e.Name)
		h.under++
		h.most = max(h.most, h.under)
		h.mu.Unlock()
		time.Sleep(takes)
		h.mu.Lock()
		h.under--
		h.mu.Unlock()
	})
}

// all returns the names of what was heard, and how many were under way together at most.
func (h *heard) all() ([]string, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.names), h.most
}

// From the start of a new configuration on, its handlers hear of all events, one after the other, also after the event that the
// old one's are still busy with.
func TestEventsOfAReloadGoToTheNewConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		before := h.configuration("old", 300*time.Millisecond)
		before.Start()
		_ = before.Handle(t.Context(), caddy.Event{})
		Emit("0", nil)
		synctest.Wait()
		after := h.configuration("new", 100*time.Millisecond)
		after.Start()
		want := []string{"old 0"}
		for i := range 9 {
			Emit(fmt.Sprint(i+1), nil)
			want = append(want, fmt.Sprint("new ", i+1))
		}
		time.Sleep(2 * time.Second)
		if names, _ := h.all(); !slices.Equal(names, want[:1]) {
			t.Errorf("before all apps have started, handlers have heard of %q", names)
		}
		_ = after.Handle(t.Context(), caddy.Event{})
		time.Sleep(50 * time.Millisecond)
		before.Stop()
		time.Sleep(10 * time.Second)
		if names, most := h.all(); !slices.Equal(names, want) || most != 1 {
			t.Errorf("handlers have heard of %q, and of %d at once; want %q, one after the other", names, most, want)
		}
		after.Stop()
	})
}

// An event that the handlers of the old configuration are busy with delays those of the new one, until the old one was given
// a second to end.
func TestEventUnderWayDuringAReload(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		after time.Duration // from the stop of the old configuration on
		most  int
	}{
		{500 * time.Millisecond, 500 * time.Millisecond, 1},
		{5 * time.Second, lastEventWait, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var h heard
			before := h.configuration("old", c.takes)
			before.Start()
			_ = before.Handle(t.Context(), caddy.Event{})
			Emit("0", nil)
			synctest.Wait()
			after := h.configuration("new", 6*time.Second)
			after.Start()
			_ = after.Handle(t.Context(), caddy.Event{})
			Emit("1", nil)
			go before.Stop()
			time.Sleep(c.after - time.Millisecond)
			if names, _ := h.all(); len(names) != 1 {
				t.Errorf("handlers have heard of %q", names)
			}
			time.Sleep(2 * time.Millisecond)
			if names, most := h.all(); len(names) != 2 || names[1] != "new 1" || most != c.most {
				t.Errorf("handlers have heard of %q, and of %d at once; want two, and %d", names, most, c.most)
			}
			time.Sleep(7 * time.Second)
			after.Stop()
		})
	}
}

// A configuration that does not start leaves the events to the one that goes on.
func TestEventsOfAReloadThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		before := h.configuration("old", time.Millisecond)
		before.Start()
		_ = before.Handle(t.Context(), caddy.Event{})
		after := h.configuration("new", time.Millisecond)
		after.Start()
		Emit("1", nil)
		after.Stop()
		Emit("2", nil)
		time.Sleep(time.Second)
		if names, _ := h.all(); !slices.Equal(names, []string{"old 1", "old 2"}) {
			t.Errorf("handlers have heard of %q, want both in the old configuration", names)
		}
		before.Stop()
	})
}
