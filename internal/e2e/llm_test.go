package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
)

const llm = "docs/llm.md"

// tell asks a recipe for an answer, and wants what its zone tells first, and after it is settled.
func (r *recipe) tell(path, body, zone string, first, then int, header ...string) {
	r.Helper()
	ask := func() string {
		req, err := http.NewRequest(http.MethodPost, "http://"+r.address+path, strings.NewReader(body))
		if err != nil {
			r.Fatal(err)
		}
		return strings.Join(r.do(req, header...).Header.Values("RateLimit"), ", ")
	}
	if got, want := ask(), fmt.Sprintf(`"%s";r=%d;`, zone, first); !strings.Contains(got, want) {
		r.Errorf("RateLimit %s, want %s", got, want)
	}
	time.Sleep(100 * time.Millisecond) // until Redis has it
	// The same request reserves the same again.
	if got, want := ask(), fmt.Sprintf(`"%s";r=%d;`, zone, then-(limitOf(zone)-first)); !strings.Contains(got, want) {
		r.Errorf("then RateLimit %s, want %s", got, want)
	}
}

// limitOf returns the limit of a zone of the page.
func limitOf(zone string) int {
	return map[string]int{"tokens": 100_000, "large": 1_000_000, "small": 1_000_000, "everybody": 5_000_000, "search": 1000, "report": 1000}[zone]
}

func TestLLM(t *testing.T) {
	model := newModel(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/search" {
			w.Header().Set("X-Units", "3")
		}
		_, _ = fmt.Fprint(w, `{"meta":{"units":7}}`)
	})
	serve := func(t *testing.T, heading string, replace ...string) *recipe {
		return serveBlock(t, llm, heading, 1, append(replace, "localhost:9000", model)...)
	}
	t.Run("first", func(t *testing.T) {
		r := serve(t, "A first limit")
		key := []string{"Authorization", "Bearer " + t.Name()}
		r.tell("/v1/chat/completions?input=30&output=12", `{}`, "tokens", 98_000, 100_000-42, key...)
	})
	t.Run("reserved", func(t *testing.T) {
		r := serve(t, "What is reserved")
		key := []string{"Authorization", "Bearer " + t.Name()}
		r.tell("/v1/chat/completions?input=30&output=12", `{"max_tokens":50}`, "tokens", 100_000-50-5, 100_000-42, key...)
	})
	t.Run("models", func(t *testing.T) {
		r := serve(t, "Anthropic, and several models")
		r.tell("/v1/messages?input=40&cached=30&output=2", `{"max_tokens":1000}`, "small", 995_000, 1_000_000-10-3-10, "X-Api-Key", t.Name())
		r.tell("/v1/messages?input=40&cached=30&output=2", `{"max_tokens":1000,"stream":true}`, "large", 975_000, 1_000_000-50-15-50, "X-Api-Key", t.Name(), "X-Model", "large")
	})
	t.Run("fleet", func(t *testing.T) {
		r := serve(t, "A fleet, with a limit per user and one for all", "redis://localhost:6379/0", "redis://"+redistest.Start(t).Addr+" {\n\t\t\ttimeout 5s\n\t\t}")
		r.tell("/v1/responses?input=30&output=12", `{"max_output_tokens":500}`, "everybody", 5_000_000-500, 5_000_000-42, "Authorization", "Bearer a")
	})
	t.Run("others", func(t *testing.T) {
		r := serve(t, "Other back ends")
		r.tell("/search", ``, "search", 990, 997)
		r.tell("/report", ``, "report", 990, 993)
		if answer := r.ask(http.MethodPost, "/search"); answer.Header.Get("X-Units") != "" {
			t.Errorf("%v", answer.Header)
		}
	})
}
