package slidingwindow

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// spent returns the units that count in the zones of a handler for such a request: of each zone with one
// limit.
func spent(t *testing.T, h *Handler, header ...string) (all []int64) {
	t.Helper()
	r := caddyhttp.PrepareRequest(handlertest.Get(header...), caddy.NewReplacer(), httptest.NewRecorder(), &caddyhttp.Server{})
	req, err := h.newRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range req.charges {
		c.Cost = 0
		ds, err := h.store.Raw.Peek(t.Context(), []window.Charge{c})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ds[0].Limit-ds[0].Remaining)
	}
	return all
}

// answers returns a handler that answers with a status, a text, and header fields, name after name.
func answers(status int, text string, header ...string) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, err := io.WriteString(w, text)
		return err
	}
}
