package answer

import (
	"net/http"
	"strconv"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// API is how an API that client libraries know writes errors, and what is left of its limits.
type API struct {
	appendError func(b []byte, p *Problem) []byte
	fields      [numUnits]stateFields
	reset       func(after time.Duration) string
}

// Units are what a limit counts.
type Units int

// The units that APIs tell apart.
const (
	Requests Units = iota
	Tokens
	numUnits
)

// stateFields are the names of the header fields that tell the state of a limit, as Go writes them.
type stateFields struct{ limit, remaining, reset string }

// OpenAI is read by the clients of OpenAI, and of those that answer as it does.
var OpenAI = &API{
	appendError: appendOpenAI,
	fields: [numUnits]stateFields{
		Requests: {"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
		Tokens:   {"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	},
	// 6ms, 1m0s
	reset: func(after time.Duration) string {
		return (after + time.Millisecond - 1).Truncate(time.Millisecond).String()
	},
}

// Anthropic is read by the clients of Anthropic.
var Anthropic = &API{
	appendError: appendAnthropic,
	fields: [numUnits]stateFields{
		Requests: {"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
		Tokens:   {"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	},
	reset: func(after time.Duration) string {
		return time.Now().Add(after + time.Second - 1).UTC().Format(time.RFC3339) // whole seconds, rounded up
	},
}

// SetState writes the fields for one limit, in the place of any that are there.
func (a *API) SetState(header http.Header, units Units, d *window.Decision) {
	f := a.fields[units]
	header[f.limit] = []string{strconv.FormatInt(d.Limit, 10)}
	header[f.remaining] = []string{strconv.FormatInt(d.Remaining, 10)}
	header[f.reset] = []string{a.reset(d.ResetAfter)}
}

// longestRetry is the longest wait, in seconds, that a program may sleep unasked.
const longestRetry = 60

// SetRetry tells clients of the API not to try again by themselves after a denial whose wait is long, or cannot
// help: they sleep for as long as Retry-After says, be it a day.
func (a *API) SetRetry(header http.Header, retryAfter int64) {
	if retryAfter == 0 || retryAfter > longestRetry {
		header["X-Should-Retry"] = []string{"false"}
	}
}

// isLimit reports whether a limit denies the request.
func (p *Problem) isLimit() bool { return len(p.Violated) > 0 && p.Kind != ProblemOfStatus }

// appendMessage writes what the client's program shows: "Rate limit exceeded (tokens:1m). Try again in 6 s."
func (p *Problem) appendMessage(b []byte) []byte {
	b = append(b, p.Title...)
	if p.isLimit() {
		separator := " ("
		for _, name := range p.Violated {
			b = append(append(b, separator...), name...)
			separator = ", "
		}
		b = append(b, ')')
	}
	b = append(b, ". "...)
	return append(b, p.Detail...)
}

func appendOpenAI(b []byte, p *Problem) []byte {
	kind, code := "invalid_request_error", "null"
	switch {
	case p.isLimit():
		kind, code = "requests", `"rate_limit_exceeded"`
		if p.Units == Tokens {
			kind = "tokens"
		}
	case p.Status == http.StatusUnauthorized:
		code = `"invalid_api_key"`
	case p.Status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	b = append(b, `{"error":{"message":"`...)
	b = p.appendMessage(b)
	b = append(append(b, `","type":"`...), kind...)
	b = append(append(b, `","param":null,"code":`...), code...)
	return append(b, `}}`...)
}

func appendAnthropic(b []byte, p *Problem) []byte {
	kind := "invalid_request_error"
	switch {
	case p.isLimit():
		kind = "rate_limit_error"
	case p.Status == http.StatusUnauthorized:
		kind = "authentication_error"
	case p.Status == http.StatusForbidden:
		kind = "permission_error"
	case p.Status == http.StatusRequestTimeout:
		kind = "timeout_error"
	case p.Status == http.StatusRequestEntityTooLarge:
		kind = "request_too_large"
	case p.Status >= http.StatusInternalServerError:
		kind = "overloaded_error"
	}
	b = append(append(b, `{"type":"error","error":{"type":"`...), kind...)
	b = append(b, `","message":"`...)
	b = p.appendMessage(b)
	return append(b, `"}}`...)
}
