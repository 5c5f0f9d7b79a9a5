package settling_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Each event of a stream over HTTP/3 reaches the client before the back end goes on: the back end waits for
// the client. Until the last one the reservation counts, and then what the stream told. A client that
// hangs up leaves its reservation, and the back end hears of it.
func TestStreamOverHTTP3(t *testing.T) {
	const events = 20
	got, gone := make(chan bool), make(chan bool)
	backEnd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range events {
			_, _ = fmt.Fprintf(w, "data: {\"usage\":{\"prompt_tokens\":%d}}\n\n", n)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-got:
			case <-r.Context().Done():
				gone <- true
				return
			}
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(backEnd.Close)
	s := serveSecurely(t, "settle usage openai", "status 5xx", backEnd.Listener.Addr().String())
	client := s.overHTTP3()
	for _, c := range []struct {
		key    string
		events int
		tokens int
	}{{"whole", events, 1000 - (events - 1)}, {"cut off", 3, 900}} {
		t.Run(c.key, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			resp, err := client.RoundTrip(s.request(ctx, http.MethodPost, "/events", c.key))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.Proto != "HTTP/3.0" {
				t.Errorf("the protocol is %s", resp.Proto)
			}
			lines := bufio.NewReader(resp.Body)
			for n := range c.events {
				line, err := lines.ReadString('\n')
				if want := fmt.Sprintf("data: {\"usage\":{\"prompt_tokens\":%d}}\n", n); line != want || err != nil {
					t.Fatalf("%q, %v, want %q", line, err, want)
				}
				if _, err := lines.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				s.wantLeft(client, c.key, 900, 10)
				if n < c.events-1 || c.events == events {
					got <- true
				}
			}
			if c.events < events {
				cancel()
				<-gone
			} else {
				_, _ = io.Copy(io.Discard, lines)
			}
			s.wantLeft(client, c.key, c.tokens, 10)
		})
	}
}
