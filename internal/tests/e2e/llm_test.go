package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakellm"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
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
	return map[string]int{"tokens": 100_000, "streams": 100_000, "large": 1_000_000, "small": 1_000_000, "everybody": 5_000_000, "search": 1000, "report": 1000}[zone]
}

func TestLLM(t *testing.T) {
	apis := newModel(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/search" {
			w.Header().Set("X-Units", "3")
		}
		_, _ = fmt.Fprint(w, `{"meta":{"units":7}}`)
	})
	// A back end lists its models, and answers preflights.
	models := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodOptions:
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/v1/models":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"object":"list","data":[]}`)
		default:
			(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "http", Host: apis}) }}).ServeHTTP(w, r)
		}
	}))
	t.Cleanup(models.Close)
	model := models.Listener.Addr().String()
	// free asks for models, and for leave to ask, as often as would use up a limit of requests that cost 2,000 units.
	free := func(r *recipe, path string, header ...string) {
		r.Helper()
		for range 60 {
			r.want(1, http.StatusOK, http.MethodGet, "/v1/models", header...)
			r.want(1, http.StatusNoContent, http.MethodOptions, path)
		}
	}
	serve := func(t *testing.T, heading string, replace ...string) *recipe {
		return serveBlock(t, llm, heading, 1, append(replace, "localhost:9000", model)...)
	}
	t.Run("first", func(t *testing.T) {
		r := serve(t, "A first limit")
		key := []string{"Authorization", "Bearer " + t.Name()}
		free(r, "/v1/chat/completions", key...)
		r.tell("/v1/chat/completions?input=30&output=12", `{}`, "tokens", 98_000, 100_000-42, key...)
	})
	t.Run("requests and tokens", func(t *testing.T) {
		r := serve(t, "A first limit")
		key := []string{"Authorization", "Bearer " + t.Name()}
		const path = "/v1/chat/completions?input=30&output=12"
		fields := func() (state []string) {
			req, err := http.NewRequest(http.MethodPost, "http://"+r.address+path, strings.NewReader(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			answer := r.do(req, key...)
			for _, units := range []string{"requests", "tokens"} {
				state = append(state, answer.Header.Get("x-ratelimit-limit-"+units), answer.Header.Get("x-ratelimit-remaining-"+units))
			}
			return state
		}
		if got := fields(); !slices.Equal(got, []string{"60", "59", "100000", "98000"}) {
			t.Errorf("got %s", got)
		}
		if got := fields(); !slices.Equal(got, []string{"60", "58", "100000", "97958"}) {
			t.Errorf("then %s", got)
		}
		last := r.want(1, http.StatusBadRequest, http.MethodPost, path, key...) // no body: the model refuses it
		for last.Status != http.StatusTooManyRequests {
			last = r.ask(http.MethodPost, path, key...)
		}
		if want := `{"error":{"message":"Rate limit exceeded (requests). Try again in `; !strings.HasPrefix(last.Body, want) || !strings.HasSuffix(last.Body, ` s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`) {
			t.Errorf("got %s", last.Body)
		}
	})
	t.Run("streams", func(t *testing.T) {
		r := serve(t, "Streams whose clients do not ask for the usage")
		const path = "/v1/chat/completions?input=30&output=12"
		if caddyrun.IsBefore(t, 2, 11, 0) {
			return
		}
		for body, cost := range map[string]int{
			`{"stream":true}`: 42,
			` { "messages":[{"content":"{env.HOME} {rest} }"}], "stream" : true}`: 42,
			`{"stream":true,"stream_options":{"include_usage":false}}`:            2000,
			`{"messages":[{"content":"\"stream\":true"}]}`:                        42,
			`{}`: 42,
		} {
			r.tell(path, body, "streams", 98_000, 100_000-cost, "Authorization", fmt.Sprint("Bearer ", len(body)))
		}
	})
	t.Run("reserved", func(t *testing.T) {
		r := serve(t, "A first limit")
		key := []string{"Authorization", "Bearer " + t.Name()}
		free(r, "/v1/chat/completions", key...)
		r.tell("/v1/chat/completions?input=30&output=12", `{"max_tokens":50}`, "tokens", 100_000-50-5, 100_000-42, key...)
		key[1] += " of another"
		r.tell("/v1/chat/completions?input=30&output=12", `{"max_tokens":50000,"n":2}`, "tokens", 50_000, 100_000-42, key...)
	})
	t.Run("models", func(t *testing.T) {
		r := serve(t, "Anthropic, and several models")
		free(r, "/v1/messages", "X-Api-Key", t.Name())
		r.tell("/v1/messages?input=40&cached=30&output=2", `{"max_tokens":1000}`, "small", 995_000, 1_000_000-10-3-10, "X-Api-Key", t.Name())
		r.tell("/v1/messages?input=40&cached=30&output=2", `{"max_tokens":1000,"stream":true}`, "large", 975_000, 1_000_000-50-15-50, "X-Api-Key", t.Name(), "X-Model", "large")
	})
	t.Run("fleet", func(t *testing.T) {
		r := serve(t, "A fleet, with a limit per user and one for all", "redis://localhost:6379/0", "redis://"+redistest.Start(t).Addr+" {\n\t\t\ttimeout 5s\n\t\t}")
		r.tell("/v1/responses?input=30&output=12", `{"max_output_tokens":500}`, "everybody", 5_000_000-500, 5_000_000-42, "Authorization", "Bearer b7e1c0d2")
		r.want(60, http.StatusUnauthorized, http.MethodPost, "/v1/responses", "Authorization", "Bearer a")
		free(r, "/v1/responses", "Authorization", "Bearer 0f4a9c55")
		req, _ := http.NewRequest(http.MethodPost, "http://"+r.address+"/v1/responses", strings.NewReader(`{"max_output_tokens":4999999}`))
		if got := r.do(req, "Authorization", "Bearer 0f4a9c55").Header.Get("RateLimit"); !strings.Contains(got, fmt.Sprintf(`"everybody";r=%d;`, 5_000_000-2*42-100_000)) {
			t.Errorf("RateLimit %s of a request that asks for all", got)
		}
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

// The commands of the page that say who spends most, and what is left.
func TestBudgetCommands(t *testing.T) {
	t.Parallel() // Caddy is a process of its own
	model := httptest.NewServer(fakellm.Handler(0))
	t.Cleanup(model.Close)
	address := caddyrun.FreeAddress(t)
	block := strings.NewReplacer(":8080 {", "http://"+address+" {\nrespond /healthz ok", "localhost:9000", model.Listener.Addr().String()).Replace(blockBelow(t, llm, "A first limit", 1))
	process := caddyrun.Start(t, "{\nadmin {admin}\npersist_config off\nauto_https off\nstorage_clean_interval off\n}\n"+block, address)
	client := caddyrun.NewClient(t)
	for _, key := range []string{"a", "b", "a"} {
		req, err := http.NewRequest(http.MethodPost, "http://"+address+"/v1/chat/completions?input=3000&output=12", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := client.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	dir := caddyrun.Commands(t)
	commands := strings.Split(strings.TrimSpace(shellBelow(t, llm, "Who spends most, and what is left")), "\n")
	for i, want := range [][]string{{"Bearer a", "6024", "Bearer b", "3012"}, {"6024", "93976"}} {
		stdout, stderr, ok := shell(t, dir, "", commands[i]+" --address "+process.Admin)
		at := 0
		for _, text := range want {
			next := strings.Index(stdout[at:], text)
			if next < 0 {
				t.Errorf("%s: no %s after byte %d, %v:\n%s%s", commands[i], text, at, ok, stdout, stderr)
				break
			}
			at += next
		}
	}
}
