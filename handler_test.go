package slidingwindow

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
)

// newHandler provisions a handler until the end of the test.
func newHandler(t testing.TB, config string) (*Handler, caddy.Context) {
	t.Helper()
	h, ctx := handlertest.New(t, config)
	return h.(*Handler), ctx
}

var metric = handlertest.Metric

// runHandler has the overrides of a handler hold, until the end of the test.
func runHandler(t testing.TB, h *Handler, storage overridestore.Storage) *overridebook.Book {
	t.Helper()
	var zones []*overridebook.Zone
	for _, z := range h.Zones {
		zones = append(zones, h.newRunningZone(z).inBook)
	}
	b := h.store.Overrides
	b.Begin(zones, storage)
	t.Cleanup(func() { b.End(zones) })
	t.Cleanup(func() { setRecords(t, b) }) // the memory store has one book
	return b
}

// setRecords makes records all that there are. Those without a zone are of the test's.
func setRecords(t testing.TB, b *overridebook.Book, records ...overrides.Record) []overrides.Record {
	t.Helper()
	for i := range records {
		if records[i].Zone == "" {
			records[i].Zone = handlertest.ZoneName(t.(*testing.T))
		}
		if err := records[i].Complete(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	c, err := b.Change(context.Background(), "", func([]overrides.Record) ([]overrides.Record, error) { return records, nil })
	if err != nil {
		t.Fatal(err)
	}
	return c.Records
}

func keyed(key string) overrides.Record { return overrides.Record{Key: &key} }

// passes returns how many of n requests with a key pass.
func passes(t *testing.T, h *Handler, key string, n int) (passed int) {
	t.Helper()
	for range n {
		if handlertest.Serve(t, handlertest.Get("X-Key", key), h).Code == http.StatusNoContent {
			passed++
		}
	}
	return passed
}

const ofKey = `"key":"{http.request.header.X-Key}",`
