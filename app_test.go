package slidingwindow

import (
	"strconv"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// A handler's max_keys holds, though the app might have had a store of its own.
func TestMaxKeysOfHandler(t *testing.T) {
	_ = caddy.Stop() // what another test has left running may want more
	h, _ := newHandler(t, zoneHandler(t, twoAnHour+`,"key":"{http.request.header.X-Key}"`, `,"store":{"module":"memory","max_keys":64}`))
	for i := range 2000 {
		serve(t, get("X-Key", strconv.Itoa(i)), h)
	}
	// Give or take one in each of 64 shards, and the one that is shared in each.
	if n := h.guard.store.(*memory.Store).Keys(); n > 200 {
		t.Errorf("got %d keys, want about 64", n)
	}
}
