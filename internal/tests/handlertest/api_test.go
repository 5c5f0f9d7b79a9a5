package handlertest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// settled is an option of a zone that counts tokens.
const settled = `,"settle":{"usage":"openai"}`

// A denial is written as the API does whose clients read it, in JSON whatever Accept says, and asks for no sleep
// above 60 s.
func TestErrorsOfAPI(t *testing.T) {
	short := window.Decision{Limit: 1, RetryAfter: 1500 * time.Millisecond}
	for name, c := range map[string]struct {
		zone      string // after its name
		decisions []window.Decision
		more      string
		status    int
		openai    string
		anthropic string
		noRetry   bool
	}{
		"requests": {
			zone: `"limits":[{"max":1,"window":"1m"}]`, decisions: []window.Decision{short}, status: 429,
			openai:    `{"error":{"message":"Rate limit exceeded (api). Try again in 2 s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
			anthropic: `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit exceeded (api). Try again in 2 s."}}`,
		},
		"tokens": {
			zone: `"limits":[{"max":1,"window":"1m"},{"max":2,"window":"1d"}]` + settled, decisions: []window.Decision{short, {RetryAfter: time.Minute}}, status: 429,
			openai:    `{"error":{"message":"Rate limit exceeded (api:1m, api:24h). Try again in 60 s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`,
			anthropic: `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit exceeded (api:1m, api:24h). Try again in 60 s."}}`,
		},
		"a day": {
			zone: `"limits":[{"max":1,"window":"1m"},{"max":2,"window":"1d"}]` + settled, decisions: []window.Decision{{Allowed: true}, {RetryAfter: time.Minute + 1}}, status: 429,
			openai:    `{"error":{"message":"Rate limit exceeded (api:24h). Try again in 61 s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`,
			anthropic: `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit exceeded (api:24h). Try again in 61 s."}}`,
			noRetry:   true,
		},
		"never": {
			zone: `"cost":2,"limits":[{"max":1,"window":"1m"}]`, decisions: []window.Decision{{Limit: 1, RetryAfter: window.Never}}, status: 429,
			openai:    `{"error":{"message":"Rate limit exceeded (api). This request can never pass: it costs more than the limit.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
			anthropic: `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit exceeded (api). This request can never pass: it costs more than the limit."}}`,
			noRetry:   true,
		},
		"no key": {
			zone: `"key":"{http.request.header.X-Key}","empty_key":"deny","empty_key_status":401,"limits":[{"max":1,"window":"1m"}]` + settled, status: 401,
			openai:    `{"error":{"message":"Unauthorized. The request lacks what it is counted by.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`,
			anthropic: `{"type":"error","error":{"type":"authentication_error","message":"Unauthorized. The request lacks what it is counted by."}}`,
			noRetry:   true,
		},
		"not allowed": {
			zone: `"key":"{http.request.header.X-Key}","empty_key":"deny","empty_key_status":403,"limits":[{"max":1,"window":"1m"}]`, status: 403,
			openai:    `{"error":{"message":"Forbidden. The request lacks what it is counted by.","type":"invalid_request_error","param":null,"code":null}}`,
			anthropic: `{"type":"error","error":{"type":"permission_error","message":"Forbidden. The request lacks what it is counted by."}}`,
			noRetry:   true,
		},
		"odd status": {
			zone: `"key":"{http.request.header.X-Key}","empty_key":"deny","empty_key_status":418,"limits":[{"max":1,"window":"1m"}]`, status: 418,
			openai:    `{"error":{"message":"I'm a teapot. The request lacks what it is counted by.","type":"invalid_request_error","param":null,"code":null}}`,
			anthropic: `{"type":"error","error":{"type":"invalid_request_error","message":"I'm a teapot. The request lacks what it is counted by."}}`,
			noRetry:   true,
		},
		"another status": {
			zone: `"limits":[{"max":1,"window":"1m"}]`, decisions: []window.Decision{short}, more: `,"status":503`, status: 503,
			openai:    `{"error":{"message":"Rate limit exceeded (api). Try again in 2 s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
			anthropic: `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit exceeded (api). Try again in 2 s."}}`,
		},
		"store away": {
			zone: `"limits":[{"max":1,"window":"1m"}]` + settled, more: `,"on_error":"deny"`, status: 503,
			openai:    `{"error":{"message":"Temporarily unavailable. The rate limit cannot be checked at the moment.","type":"server_error","param":null,"code":null}}`,
			anthropic: `{"type":"error","error":{"type":"overloaded_error","message":"Temporarily unavailable. The rate limit cannot be checked at the moment."}}`,
		},
	} {
		for api, want := range map[string]string{"openai": c.openai, "anthropic": c.anthropic} {
			t.Run(name+" "+api, func(t *testing.T) {
				decide := Decides(c.decisions...)
				if c.decisions == nil {
					decide = Away
				}
				_, store := NewFake(t, decide)
				h, _ := New(t, `{"zones":[{"name":"api",`+c.zone+`}],"errors":"`+api+`","store":`+store+c.more+`}`)
				w := Serve(t, Get("Accept", "text/html"), h)
				if w.Code != c.status || w.Header().Get("Content-Type") != "application/json" || w.Body.String() != want {
					t.Errorf("got %d, %s:\n%s\nwant %d:\n%s", w.Code, w.Header().Get("Content-Type"), w.Body, c.status, want)
				}
				if got := w.Header().Get("X-Should-Retry") == "false"; got != c.noRetry {
					t.Errorf("X-Should-Retry %q, want false: %v; Retry-After is %q", w.Header()["X-Should-Retry"], c.noRetry, w.Header()["Retry-After"])
				}
			})
		}
	}
}

// stateOf returns the fields of an API in an answer.
func stateOf(header http.Header) string {
	var state []string
	for _, api := range []string{"X-Ratelimit-%s-%s", "Anthropic-Ratelimit-%[2]s-%[1]s"} {
		for _, units := range []string{"Requests", "Tokens"} {
			for _, name := range []string{"Limit", "Remaining", "Reset"} {
				name = strings.NewReplacer("%s-%s", name+"-"+units, "%[2]s-%[1]s", units+"-"+name).Replace(api)
				state = append(state, header[name]...)
			}
		}
	}
	return strings.Join(state, " ")
}

// The tightest limits of requests and of tokens are told in the fields of the API, in the place of what the back
// end says of its own.
func TestStateOfAPI(t *testing.T) {
	decisions := []window.Decision{
		{Allowed: true, Limit: 100, Remaining: 90, ResetAfter: 5500 * time.Microsecond},
		{Allowed: true, Limit: 3000, Remaining: 1000, ResetAfter: time.Minute},
		{Allowed: true, Limit: 90000, Remaining: 900, ResetAfter: 90 * time.Second},
	}
	const zones = `{"zones":[{"name":"api.requests","limits":[{"max":100,"window":"1m"}]},{"name":"api.tokens","limits":[{"max":3000,"window":"1m"},{"max":90000,"window":"1d"}]` + settled + `}]`
	for errors, want := range map[string]string{
		"openai":                      "100 90 6ms 90000 900 1m30s",
		"problem":                     "7 7",
		"openai\",\"headers\":\"none": "7 7",
	} {
		_, store := NewFake(t, Decides(decisions...))
		h, _ := New(t, zones+`,"errors":"`+errors+`","store":`+store+`}`)
		w := httptest.NewRecorder()
		err := AnswerWith(h, w, Get(), func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Add("X-Ratelimit-Remaining-Requests", "7")
			w.Header().Add("X-Ratelimit-Remaining-Tokens", "7")
			w.WriteHeader(http.StatusOK)
			return nil
		})
		if got := stateOf(w.Header()); err != nil || got != want {
			t.Errorf("errors %s: %q, %v, want %q", errors, got, err, want)
		}
	}
	t.Run("anthropic", func(t *testing.T) {
		_, store := NewFake(t, Decides(decisions...))
		h, _ := New(t, zones+`,"errors":"anthropic","store":`+store+`}`)
		before := time.Now()
		w := Serve(t, Get(), h)
		got := w.Header().Get("Anthropic-Ratelimit-Tokens-Reset")
		at, err := time.Parse(time.RFC3339, got)
		if err != nil || at.Before(before.Add(90*time.Second)) || at.After(time.Now().Add(91*time.Second)) || !strings.HasSuffix(got, "Z") {
			t.Errorf("reset at %q, %v", got, err)
		}
		w.Header().Del("Anthropic-Ratelimit-Tokens-Reset")
		w.Header().Del("Anthropic-Ratelimit-Requests-Reset")
		if got := stateOf(w.Header()); got != "100 90 90000 900" {
			t.Errorf("%q", got)
		}
	})
}

// The fields have the tighter limit of two handlers, in either order. They also have a denial by the second one.
func TestStateOfAPIOfTwoHandlers(t *testing.T) {
	zone := func(name string, d window.Decision) string {
		_, store := NewFake(t, Decides(d))
		return `{"zones":[{"name":"` + name + `","limits":[{"max":9,"window":"1m"}]}],"errors":"openai","store":` + store + `}`
	}
	for want, ds := range map[string][2]window.Decision{
		"9 3 0s": {{Allowed: true, Limit: 9, Remaining: 3}, {Allowed: true, Limit: 9, Remaining: 5}},
		"8 2 0s": {{Allowed: true, Limit: 9, Remaining: 3}, {Allowed: true, Limit: 8, Remaining: 2}},
		"7 0 1s": {{Allowed: true, Limit: 9, Remaining: 3}, {Limit: 7, ResetAfter: time.Second, RetryAfter: time.Second}},
	} {
		first, ctx := New(t, zone("outer", ds[0]))
		second, err := Another(ctx, zone("inner", ds[1]))
		if err != nil {
			t.Fatal(err)
		}
		if got := stateOf(Serve(t, Get(), first, second).Header()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
