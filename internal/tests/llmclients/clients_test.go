//go:build llmclients

package llmclients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakellm"
)

func TestMain(m *testing.M) {
	os.Exit(caddyrun.Main(m, func() {}))
}

// apis are the words of errors, with the field that tells how many tokens are left.
var apis = map[string]string{"openai": "x-ratelimit-remaining-tokens", "anthropic": "anthropic-ratelimit-tokens-remaining"}

// serve runs Caddy with a directive before a model, with errors for an API and this in its block, and returns the
// address.
func serve(t *testing.T, api, block, site string) string {
	t.Helper()
	model := httptest.NewServer(fakellm.Handler(0))
	t.Cleanup(model.Close)
	address := caddyrun.FreeAddress(t)
	if api != "" {
		block += "\n\t\terrors " + api
	}
	caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	storage_clean_interval off
}
http://%s {
	respond /healthz ok
	@model method POST
	sliding_window @model {
		%s
	}
	reverse_proxy %s
	%s
}
`, address, block, strings.TrimPrefix(model.URL, "http://"), site), address)
	return address
}

// tokens is a zone whose requests cost 120 tokens, with limits.
func tokens(api, limits string) string {
	return "zone tokens {\n" + limits + "\ncost 120\nsettle usage " + api + "\n}"
}

// seen is what a program sees that asks a model.
type seen struct {
	Error, Message string
	Type, Code     *string
	Status         int
	Events         int
	Waits          []float64 // ms
	Requests       int
	Header         map[string]string
	Usage          map[string]any
}

// ask makes a client ask the model for an answer of 120 tokens.
func ask(t *testing.T, api, address string, options map[string]any) seen {
	t.Helper()
	libraries := os.Getenv("LLM_CLIENTS")
	if libraries == "" {
		t.Fatal("LLM_CLIENTS is not set: run make test-clients")
	}
	text, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + address
	if api == "openai" {
		base += "/v1"
	}
	cmd := exec.Command("node", "client.cjs", libraries, api, base, string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var s seen
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&s); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}

// text returns a text that may be missing.
func text(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

// milliseconds returns Retry-After of what was seen.
func (s seen) milliseconds(t *testing.T) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(s.Header["retry-after"], 64)
	if err != nil {
		t.Fatalf("%v: %+v", err, s)
	}
	return n * 1000
}

// each runs a test for both APIs.
func each(t *testing.T, test func(t *testing.T, api, field string)) {
	for api, field := range apis {
		t.Run(api, func(t *testing.T) { test(t, api, field) })
	}
}

var never = map[string]any{"retries": 0}

// A program sees how many tokens are left, and the message, the type and the wait of a denial, in a stream as well.
func TestDenialSeen(t *testing.T) {
	each(t, func(t *testing.T, api, field string) {
		address := serve(t, api, tokens(api, "limit 300 1m"), "")
		if s := ask(t, api, address, never); s.Error != "" || s.Usage == nil || s.Header[field] != "180" {
			t.Errorf("%+v, want an answer, and 180 tokens left", s)
		}
		for _, stream := range []bool{false, true} {
			var s seen
			for s.Error == "" { // until the tokens are spent
				s = ask(t, api, address, map[string]any{"retries": 0, "stream": stream})
			}
			wait := s.milliseconds(t) / 1000
			wantType, wantCode := "tokens", "rate_limit_exceeded"
			if api == "anthropic" {
				wantType, wantCode = "rate_limit_error", "-"
			}
			message := fmt.Sprintf("Rate limit exceeded (tokens). Try again in %v s.", wait)
			if s.Error != "RateLimitError" || s.Status != 429 || !strings.Contains(s.Message, message) || text(s.Type) != wantType || text(s.Code) != wantCode {
				t.Errorf("stream %v: %s %d, message %q, type %s, code %s, want %q", stream, s.Error, s.Status, s.Message, text(s.Type), text(s.Code), message)
			}
			if wait < 1 || wait > 60 || s.Header[field] == "" {
				t.Errorf("stream %v: %v", stream, s.Header)
			}
		}
	})
}

// Without a line of code, a client waits as long as Retry-After says, and then has its answer.
func TestClientTriesAgain(t *testing.T) {
	each(t, func(t *testing.T, api, _ string) {
		address := serve(t, api, tokens(api, "limit 130 5s"), "")
		for range 20 {
			s := ask(t, api, address, map[string]any{})
			if s.Error != "" || len(s.Waits) != s.Requests-1 {
				t.Fatalf("%+v", s)
			}
			if slices.ContainsFunc(s.Waits, func(ms float64) bool { return ms < 1000 || ms > 5000 }) {
				t.Errorf("waits %v, want 1 to 5 s", s.Waits)
			}
			if len(s.Waits) > 0 {
				return
			}
		}
		t.Error("no request was denied")
	})
}

// A client does not sleep until the next day: its program has the error at once, with the wait, also where an
// error route writes the body. A header directive asks for the sleep.
func TestDailyLimitIsNoSleep(t *testing.T) {
	each(t, func(t *testing.T, api, _ string) {
		for name, c := range map[string]struct {
			site   string
			sleeps bool
		}{
			"by itself":     {"", false},
			"error route":   {"handle_errors 429 {\nrespond `{}`\n}", false},
			"sleep allowed": {"header -X-Should-Retry", true},
		} {
			t.Run(name, func(t *testing.T) {
				address := serve(t, api, tokens(api, "limit 1000 1m\nlimit 200 1d"), c.site)
				var s seen
				for s.Error == "" && len(s.Waits) == 0 { // until the tokens are spent
					s = ask(t, api, address, map[string]any{"retries": 1})
				}
				wait := s.milliseconds(t)
				if s.Status != 429 || wait < 80_000_000 {
					t.Errorf("%+v", s)
				}
				if got := len(s.Waits) == 1 && s.Waits[0] >= wait; got != c.sleeps || !c.sleeps && s.Requests != 1 {
					t.Errorf("waits %v, %d requests, want a sleep of %v ms or more: %v", s.Waits, s.Requests, wait, c.sleeps)
				}
			})
		}
	})
}

// With on_error deny, a client sees why there is no answer while Redis is away.
func TestOutageSeen(t *testing.T) {
	each(t, func(t *testing.T, api, _ string) {
		address := serve(t, api, tokens(api, "limit 300 1m")+"\nstore redis redis://"+caddyrun.FreeAddress(t)+"\non_error deny", "")
		s := ask(t, api, address, never)
		want := map[string]string{"openai": "server_error", "anthropic": "overloaded_error"}[api]
		if s.Error != "InternalServerError" && s.Error != "ServiceUnavailableError" || s.Status != 503 || text(s.Type) != want || !strings.Contains(s.Message, "The rate limit cannot be checked at the moment.") {
			t.Errorf("%+v", s)
		}
	})
}
