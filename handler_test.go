package slidingwindow

import (
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
)

// newHandler provisions a handler until the end of the test.
func newHandler(t testing.TB, config string) (*Handler, caddy.Context) {
	t.Helper()
	h, ctx := handlertest.New(t, config)
	return h.(*Handler), ctx
}

var metric = handlertest.Metric
