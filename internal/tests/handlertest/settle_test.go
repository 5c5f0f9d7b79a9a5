package handlertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

// client is the key of Get.
const client = "192.0.2.1"

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

const (
	chatAnswer    = `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":20}}}`
	messageAnswer = `{"content":[],"usage":{"input_tokens":10,"cache_read_input_tokens":20,"output_tokens":7}}`
)

// fails is a handler that returns an error.
func fails(err error) caddyhttp.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) error { return err }
}

// cut returns a handler whose answer ends in the middle of a stream, as that of a back end that fails.
func cut(reason any) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":300,\"output_tokens\":1}}}\n\n")
		if err, ok := reason.(error); ok {
			return err
		}
		panic(reason)
	}
}

// What a request costs that has reserved 100 units, by its answer.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name, settle string
		next         caddyhttp.HandlerFunc
		want         int64
		missing      usage.Reason
	}{
		{"openai", `"usage":"openai"`, answers(200, chatAnswer), 37, ""},
		{"anthropic", `"usage":"anthropic"`, answers(200, messageAnswer), 37, ""},
		{"weights", `"usage":"openai","weight":{"input":2,"cached":0.5,"output":10}`, answers(200, chatAnswer), 100, ""},
		{"more than was reserved", `"usage":"openai","weight":{"output":100}`, answers(200, chatAnswer), 730, ""},
		{"above the limit", `"usage":"openai","weight":{"output":1000}`, answers(200, chatAnswer), 7030, ""},
		{"a total only", `"usage":"openai"`, answers(200, `{"usage":{"total_tokens":17}}`), 17, ""},
		{"a second text", `"usage":"openai"`, answers(200, chatAnswer+`{"usage":{"prompt_tokens":0,"completion_tokens":0}}`), 37, ""},
		{"a response", `"usage":"openai"`, answers(200, strings.TrimSuffix(chatAnswer, "}")+`,"response":{"usage":{"input_tokens":0,"output_tokens":0}}}`), 37, ""},
		{"max", `"usage":"openai","max":110,"weight":{"output":100}`, answers(200, chatAnswer), 110, ""},
		{"an error that tells", `"usage":"openai"`, answers(500, chatAnswer), 37, ""},
		{"no usage", `"usage":"openai"`, answers(200, `{"choices":[]}`), 100, usage.NoUsage},
		{"not JSON", `"usage":"openai"`, answers(200, chatAnswer, "Content-Type", "text/html"), 100, usage.NoUsage},
		{"no body", `"usage":"openai"`, func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(204); return nil }, 100, usage.NoUsage},
		{"another coding", `"usage":"openai"`, answers(200, chatAnswer, "Content-Encoding", "br"), 100, usage.Encoded},
		{"no usage, refund", `"usage":"openai","on_missing":"refund"`, answers(200, `{"choices":[]}`), 0, usage.NoUsage},
		{"no usage, units", `"usage":"openai","on_missing":5`, answers(200, `{"choices":[]}`), 5, usage.NoUsage},
		{"an error", `"usage":"openai"`, answers(500, `{"error":{}}`), 0, usage.NoUsage},
		{"a bad request", `"usage":"anthropic"`, answers(400, `{"error":{}}`), 0, usage.NoUsage},
		{"refund_if", `"usage":"openai","refund_if":{"status_code":[503]}`, answers(503, `{"error":{}}`), 0, usage.NoUsage},
		{"not refund_if", `"usage":"openai","refund_if":{"status_code":[503]}`, answers(500, `{"error":{}}`), 100, usage.NoUsage},
		{"an error outside", `"usage":"openai"`, fails(caddyhttp.Error(502, errors.New("connection refused"))), 0, usage.NoUsage},
		{"an error outside, refund_if", `"usage":"openai","refund_if":{"status_code":[400]}`, fails(caddyhttp.Error(502, io.EOF)), 100, usage.NoUsage},
		{"cut off", `"usage":"openai"`, cut(http.ErrAbortHandler), 100, usage.Aborted},
		{"an error in the middle", `"usage":"openai"`, cut(io.ErrUnexpectedEOF), 100, usage.Aborted},
		{"cut off, refund", `"usage":"openai","on_abort":"refund"`, cut(http.ErrAbortHandler), 0, usage.Aborted},
		{"cut off, units", `"usage":"openai","on_abort":5`, cut(http.ErrAbortHandler), 5, usage.Aborted},
		{"cut off, input told", `"usage":"anthropic"`, cut(http.ErrAbortHandler), 301, usage.Aborted},
		{"cut off, input told, refund", `"usage":"anthropic","on_abort":"refund"`, cut(http.ErrAbortHandler), 301, usage.Aborted},
		{"a panic", `"usage":"openai"`, func(http.ResponseWriter, *http.Request) error { panic("no reason") }, 100, usage.Aborted},
		{"upgraded", `"usage":"openai"`, answers(101, chatAnswer), 100, usage.NoUsage},

		{"json", `"json":"meta.units"`, answers(200, `{"meta":{"units":12.5}}`), 13, ""},
		{"json, error", `"json":"meta.units"`, answers(500, `{"error":{}}`), 100, usage.NoUsage},
		{"json, error, refund_if", `"json":"meta.units","refund_if":{"status_code":[5]}`, answers(500, `{"error":{}}`), 0, usage.NoUsage},
		{"json in an array", `"json":"results.#.units|0"`, answers(200, `{"results":[{"units":12}]}`), 12, ""},

		{"header", `"header":"X-Units"`, answers(200, "", "X-Units", "12"), 12, ""},
		{"header, 0", `"header":"X-Units"`, answers(200, "", "X-Units", "0"), 0, ""},
		{"header, max", `"header":"X-Units","max":110`, answers(200, "", "X-Units", "99999999999999999999"), 110, ""},
		{"header, missing", `"header":"X-Units"`, answers(200, ""), 100, usage.NoUsage},
		{"header, no number", `"header":"X-Units"`, answers(200, "", "X-Units", "12 tokens"), 100, usage.NoUsage},
		{"header, negative", `"header":"X-Units"`, answers(200, "", "X-Units", "-12"), 100, usage.NoUsage},
		{"header, error outside", `"header":"X-Units"`, fails(caddyhttp.Error(502, io.EOF)), 100, usage.NoUsage},
		{"header of an upgrade", `"header":"X-Units"`, answers(101, "", "X-Units", "12"), 12, ""},
	} {
		t.Run(strings.ReplaceAll(c.name, ",", ""), func(t *testing.T) {
			h, ctx := New(t, OfZone(t, `"limits":[{"max":1000,"window":"1h"}],"cost":100,"settle":{`+c.settle+`}`, ""))
			Start(t, ctx)
			_ = AnswerWith(h, httptest.NewRecorder(), Get(), c.next)
			got := used(t, ZoneName(t), client)
			if c.want > 1000 {
				w := httptest.NewRecorder()
				if _ = AnswerWith(h, w, Get(), c.next); w.Code != 429 || got != c.want {
					t.Errorf("status %d with %d units spent, want 429 with %d", w.Code, got, c.want)
				}
				return
			}
			if got != c.want {
				t.Errorf("%d units are spent, want %d", got, c.want)
			}
			for _, reason := range []usage.Reason{usage.NoUsage, usage.Aborted, usage.Encoded, usage.TooLong} {
				want := 0.0
				if reason == c.missing {
					want = 1
				}
				if n := Metric(t, ctx, "caddy_sliding_window_settle_missing_total", "zone", ZoneName(t), "reason", string(reason)); n != want {
					t.Errorf("%v answers missed by %s, want %v", n, reason, want)
				}
			}
			for direction, want := range map[string]int64{"kept": min(c.want, 100), "given_back": max(0, 100-c.want), "excess": max(0, c.want-100)} {
				if n := Metric(t, ctx, "caddy_sliding_window_settled_units_total", "zone", ZoneName(t), "direction", direction); n != float64(want) {
					t.Errorf("%v units are %s, want %d", n, direction, want)
				}
			}
			if n := Metric(t, ctx, "caddy_sliding_window_settle_seconds", "zone", ZoneName(t)); n != 1 {
				t.Errorf("%v settlements are timed, want 1", n)
			}
		})
	}
}

// A client that hangs up does not choose what counts, wherever the answer is.
func TestSettleHangUp(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	h, ctx := New(t, OfZone(t, ofKey+`"limits":[{"max":1000,"window":"1h"}],"cost":100,"settle":{"usage":"openai","on_missing":"refund"}`, ""))
	Start(t, ctx)
	for key, next := range map[string]caddyhttp.HandlerFunc{
		"returns":     fails(nil),
		"fails":       fails(caddyhttp.Error(499, context.Canceled)),
		"panics":      func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) },
		"has started": cut(http.ErrAbortHandler),
		"is written":  answers(200, ""),
		"is an error": answers(500, ""),
	} {
		_ = AnswerWith(h, httptest.NewRecorder(), Get("X-Key", key).WithContext(gone), next)
		if n := used(t, ZoneName(t), key); n != 100 {
			t.Errorf("%s: %d units are spent, want 100", key, n)
		}
	}
	_ = AnswerWith(h, httptest.NewRecorder(), Get("X-Key", "told").WithContext(gone), answers(200, chatAnswer))
	if n := used(t, ZoneName(t), "told"); n != 37 {
		t.Errorf("%d units are spent by an answer that told all before, want 37", n)
	}
	if n := Metric(t, ctx, "caddy_sliding_window_settle_missing_total", "zone", ZoneName(t), "reason", "aborted"); n != 6 {
		t.Errorf("%v are aborted, want 6", n)
	}
}

// A header is stripped, and several zones and handlers read it all the same.
func TestSettleStrip(t *testing.T) {
	zone := func(name, more string) string {
		return fmt.Sprintf(`{"name":"TestSettleStrip.%s","limits":[{"max":1000,"window":"1h"}],"cost":100,"settle":{"header":"X-Units"%s}}`, name, more)
	}
	outer, ctx := New(t, `{"zones":[`+zone("a", "")+`]}`)
	Start(t, ctx)
	inner, ctx := New(t, `{"zones":[`+zone("b", `,"strip":true`)+`,`+zone("c", `,"strip":true`)+`]}`)
	Start(t, ctx)
	w := httptest.NewRecorder()
	err := AnswerWith(outer, w, Get(), func(w http.ResponseWriter, r *http.Request) error {
		return inner.ServeHTTP(w, r, answers(200, "", "X-Units", "12"))
	})
	for _, zone := range []string{"a", "b", "c"} {
		if n := used(t, "TestSettleStrip."+zone, client); n != 12 {
			t.Errorf("%s: %d units are spent, want 12", zone, n)
		}
	}
	if err != nil || w.Header().Get("X-Units") != "" {
		t.Errorf("the client gets %q, %v", w.Header(), err)
	}
}

// The same zone in two handlers of one request is charged and settled once. Another one is not.
func TestSettleOnce(t *testing.T) {
	const zone = `{"zones":[{"name":"TestSettleOnce","limits":[{"max":1000,"window":"1h"}],"cost":100,"settle":{"usage":"openai"}}]}`
	outer, ctx := New(t, zone)
	inner, err := Another(ctx, zone)
	if err != nil {
		t.Fatal(err)
	}
	Start(t, ctx)
	spent := func() int64 { return used(t, "TestSettleOnce", client) }
	err = AnswerWith(outer, httptest.NewRecorder(), Get(), func(w http.ResponseWriter, r *http.Request) error {
		if n := spent(); n != 100 {
			t.Errorf("%d are reserved, want 100", n)
		}
		return inner.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			if n := spent(); n != 100 {
				t.Errorf("%d are reserved after the second handler, want 100", n)
			}
			return answers(200, chatAnswer)(w, r)
		}))
	})
	if n := spent(); err != nil || n != 37 {
		t.Errorf("%d units are spent, want 37: %v", n, err)
	}
}

// A denial of this module costs nothing outside of it.
func TestSettleOfDenials(t *testing.T) {
	outer, ctx := New(t, `{"zones":[{"name":"TestSettleOfDenials.outer","limits":[{"max":1000,"window":"1h"}],"cost":100,"settle":{"usage":"openai","refund_if":{"status_code":[599]}}}]}`)
	Start(t, ctx)
	inner, _ := New(t, `{"zones":[{"name":"TestSettleOfDenials.inner","limits":[{"max":0,"window":"1h"}]}]}`)
	w := Serve(t, Get(), outer, inner)
	if n := used(t, "TestSettleOfDenials.outer", client); w.Code != 429 || n != 0 {
		t.Errorf("status %d, %d units are spent, want 429 and 0", w.Code, n)
	}
}

// What is reserved, by the body of the request.
func TestReserve(t *testing.T) {
	for _, c := range []struct {
		name, settle, body string
		limit              int64
		want               int64
	}{
		{"cost", ``, `{"max_tokens":5}`, 1000, 100},
		{"a field", `,"reserve_json":["max_tokens"]`, `{"max_tokens":5}`, 1000, 5},
		{"the largest field", `,"reserve_json":["max_tokens","max_completion_tokens"]`, `{"max_tokens":1,"max_completion_tokens":900}`, 1000, 900},
		{"no field", `,"reserve_json":["max_tokens"]`, `{"messages":[]}`, 1000, 100},
		{"no JSON", `,"reserve_json":["max_tokens"]`, `max_tokens=5`, 1000, 100},
		{"no body", `,"reserve_json":["max_tokens"]`, ``, 1000, 100},
		{"a large body", `,"reserve_json":["max_tokens"]`, `{"x":"` + strings.Repeat("x", 300_000) + `","max_tokens":5}`, 1000, 100},
		{"capped", `,"reserve_json":["max_tokens"]`, `{"max_tokens":100000}`, 1000, 1000},
		{"cost, capped", ``, ``, 60, 60},
		{"weight", `,"reserve_json":["max_tokens"],"weight":{"output":2.5}`, `{"max_tokens":5}`, 1000, 13},
		{"the body", `,"reserve_json":["max_tokens"],"reserve_body":4,"weight":{"input":2}`, `{"max_tokens":5}`, 1000, 13},
		{"the body without a field", `,"reserve_json":["max_tokens"],"reserve_body":1`, `{"x":"` + strings.Repeat("x", 200) + `"}`, 1000, 208},
		{"0 is no number of tokens", `,"reserve_json":["max_tokens"]`, `{"max_tokens":0}`, 1000, 100},
		{"never below 1", `,"reserve_json":["max_tokens"],"weight":{"output":0}`, `{"max_tokens":5}`, 1000, 1},
		{"several answers", `,"reserve_json":["max_tokens"]`, `{"max_tokens":5,"n":3,"prompt":["a","b"]}`, 1000, 30},
		{"several answers without a field", `,"reserve_json":["max_tokens"]`, `{"n":3}`, 1000, 300},
		{"a decoy, and more", `,"reserve_json":["max_tokens"]`, `{"max_tokens":1,"x":"` + strings.Repeat("x", 300_000) + `","max_tokens":900}`, 1000, 100},
		{"reserve_max", `,"reserve_json":["max_tokens"],"reserve_max":150`, `{"max_tokens":500}`, 1000, 150},
		{"reserve_max, and n", `,"reserve_json":["max_tokens"],"reserve_max":150`, `{"n":500}`, 1000, 150},
		{"reserve_max that is not reached", `,"reserve_json":["max_tokens"],"reserve_max":150`, `{"max_tokens":5}`, 1000, 5},
	} {
		t.Run(strings.ReplaceAll(c.name, ",", ""), func(t *testing.T) {
			h, ctx := New(t, OfZone(t, fmt.Sprintf(`"limits":[{"max":%d,"window":"1h"},{"max":100000,"window":"2h"}],"cost":100,"settle":{"usage":"openai"%s}`, c.limit, c.settle), ""))
			Start(t, ctx)
			passed := false
			err := AnswerWith(h, httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(c.body)), func(_ http.ResponseWriter, r *http.Request) error {
				passed = true
				if n := used(t, ZoneName(t), client); n != c.want {
					t.Errorf("%d are reserved, want %d", n, c.want)
				}
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != c.body {
					t.Errorf("the back end reads %d bytes, %v, want %d", len(body), err, len(c.body))
				}
				return nil
			})
			if err != nil || !passed {
				t.Errorf("passed %v, %v", passed, err)
			}
		})
	}
}

// A request reserves at most the smallest limit of all zones of the handler that settle, also of one that does not count it.
func TestReserveInSeveralZones(t *testing.T) {
	zone := func(name, key string, limit, cost int) string {
		return fmt.Sprintf(`{"name":"%s.%s","key":"%s","empty_key":"skip","limits":[{"max":%d,"window":"1h"},{"max":1000000,"window":"2h"}],"cost":%d,"settle":{"usage":"openai","reserve_json":["max_tokens"]}}`,
			t.Name(), name, key, limit, cost)
	}
	h, ctx := New(t, `{"zones":[`+zone("all", "{http.request.header.X-All}", 100_000, 300)+`,`+zone("user", "{http.request.header.X-Key}", 200, 200)+`]}`)
	Start(t, ctx)
	for _, header := range [][]string{nil, {"X-Key", "anna"}} {
		before := used(t, t.Name()+".all", "all")
		r := httptest.NewRequest("POST", "/", strings.NewReader(`{"max_tokens":50000}`))
		r.Header.Set("X-All", "all")
		if header != nil {
			r.Header.Set(header[0], header[1])
		}
		_ = AnswerWith(h, httptest.NewRecorder(), r, func(http.ResponseWriter, *http.Request) error {
			if n := used(t, t.Name()+".all", "all") - before; n != 200 {
				t.Errorf("%d are reserved of all with %q, want 200", n, header)
			}
			return caddyhttp.Error(500, nil)
		})
	}
}

// A body that does not come to its end is refused in the form of errors, and costs nothing. The error of a client that
// hung up, and one of the server, are Caddy's.
func TestReserveOfABrokenBody(t *testing.T) {
	const (
		problem   = `{"detail":"<detail>","status":<status>,"title":"<title>","type":"about:blank"}`
		openAI    = `{"error":{"message":"<title>. <detail>","type":"invalid_request_error","param":null,"code":null}}`
		anthropic = `{"type":"error","error":{"type":"<kind>","message":"<title>. <detail>"}}`
	)
	for _, errs := range []struct{ word, body string }{{"", problem}, {"problem", problem}, {"openai", openAI}, {"anthropic", anthropic}} {
		zone := `"limits":[{"max":1000,"window":"1h"}],"cost":100,"settle":{"usage":"openai","reserve_json":["max_tokens"]}`
		h, ctx := New(t, OfZone(t, zone, `,"errors":"`+errs.word+`"`))
		stop := Start(t, ctx)
		for want, c := range map[int]struct {
			fails               error
			detail, title, kind string // kind: of Anthropic
		}{
			499: {fails: io.ErrUnexpectedEOF},
			503: {fails: caddyhttp.Error(503, errors.New("said by a handler before"))},
			408: {os.ErrDeadlineExceeded, "The body of the request came too late.", "Request Timeout", "timeout_error"},
			413: {&http.MaxBytesError{Limit: 5}, "The body of the request is too large.", "Request Entity Too Large", "request_too_large"},
			400: {errors.New("malformed chunked encoding"), "The body of the request could not be read.", "Bad Request", "invalid_request_error"},
			418: {caddyhttp.Error(418, errors.New("said by a handler before")), "The body of the request could not be read.", "I'm a teapot", "invalid_request_error"},
		} {
			r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(`{"max_tokens":5`), iotest.ErrReader(c.fails)))
			w := httptest.NewRecorder()
			err := AnswerWith(h, w, r, func(http.ResponseWriter, *http.Request) error {
				t.Errorf("%v: the request passes", c.fails)
				return nil
			})
			var status caddyhttp.HandlerError
			switch {
			case c.detail != "":
				body := strings.NewReplacer("<detail>", c.detail, "<status>", fmt.Sprint(want), "<title>", c.title, "<kind>", c.kind).Replace(errs.body)
				if err != nil || w.Code != want || w.Body.String() != body {
					t.Errorf("errors %s, %v: %v, status %d, want %d\n%s\nwant\n%s", errs.word, c.fails, err, w.Code, want, w.Body, body)
				}
			case !errors.As(err, &status) || status.StatusCode != want || w.Body.Len() > 0:
				t.Errorf("%v: %v, want status %d, and no body: %s", c.fails, err, want, w.Body)
			}
		}
		if n := used(t, ZoneName(t), client); n != 0 {
			t.Errorf("%d units are spent, want 0", n)
		}
		stop()
	}
}

// Each algorithm, and a packed one, gives back and charges more; what is charged above the limit is a debt.
func TestSettleByAlgorithm(t *testing.T) {
	for _, algorithm := range []string{
		`"algorithm":{"name":"zset"}`, `"algorithm":{"name":"log"}`, `"algorithm":{"name":"stream"}`, `"algorithm":{"name":"slices"}`,
		`"algorithm":{"name":"slices","weighted":true}`, `"algorithm":{"name":"slices","layers":{"coarse":"1m","fine":"10s"}}`,
		`"algorithm":{"name":"slices","count":3},"pack":1000`,
	} {
		h, ctx := New(t, OfZone(t, `"limits":[{"max":1000,"window":"1h"}],"cost":100,"settle":{"header":"X-Units"},`+algorithm, ""))
		stop := Start(t, ctx)
		for _, c := range []struct{ cost, want int64 }{{30, 30}, {500, 530}, {0, 530}, {5000, 5530}} {
			if err := AnswerWith(h, httptest.NewRecorder(), Get(), answers(200, "", "X-Units", fmt.Sprint(c.cost))); err != nil {
				t.Fatal(err)
			}
			if n := used(t, ZoneName(t), client); n != c.want {
				t.Errorf("%s: %d units are spent, want %d", algorithm, n, c.want)
			}
		}
		if w := Serve(t, Get(), h); w.Code != 429 {
			t.Errorf("%s: status %d with a debt, want 429", algorithm, w.Code)
		}
		answer := Admin(t, http.MethodPost, "reset", fmt.Sprintf(`{"zone":%q,"key":%q}`, ZoneName(t), client))
		if n := used(t, ZoneName(t), client); n != 0 {
			t.Errorf("%s: %d units are spent after a reset: %s", algorithm, n, answer)
		}
		stop()
	}
}

// A zone that never finds the cost says so once. One that finds it once does not, and answers that were cut off say nothing.
func TestSettleNeverFinds(t *testing.T) {
	const seekLast = 100 // answers
	const message = "answers of a zone with settle never tell what they cost; on_missing decides"
	zone := func(name string) string {
		return `{"zones":[{"name":"` + ZoneName(t) + name + `","limits":[{"max":1000000,"window":"1h"}],"settle":{"usage":"openai"}}]}`
	}
	never, ctx, logs := NewObserved(t, zap.WarnLevel, zone(""))
	finds, err := Another(ctx, zone(".finds"))
	if err != nil {
		t.Fatal(err)
	}
	cutOff, err := Another(ctx, zone(".cut"))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(h caddyhttp.MiddlewareHandler, next caddyhttp.HandlerFunc) {
		_ = AnswerWith(h, httptest.NewRecorder(), Get(), next)
	}
	answer(finds, answers(200, chatAnswer))
	for i := range 3 * seekLast {
		answer(finds, answers(200, "{}"))
		answer(cutOff, cut(http.ErrAbortHandler))
		answer(never, answers(500, "{}"))
		if n := logs.FilterMessage(message).Len(); n != min(1, i/seekLast) {
			t.Fatalf("%d lines after %d answers", n, i)
		}
		answer(never, answers(200, "{}"))
		if n := logs.FilterMessage(message).Len(); n != min(1, (i+1)/seekLast) {
			t.Fatalf("%d lines after %d answers", n, i+1)
		}
	}
}

// Two zones that mean the same are one, however they are written.
func TestSettleDefinition(t *testing.T) {
	zone := func(settle string) string {
		return OfZone(t, TwoAnHour+`,"settle":{`+settle+`}`, "")
	}
	for _, same := range [][2]string{
		{`"usage":"openai"`, `"usage":"openai","on_missing":"keep","on_abort":"keep","max":"1000000000000","weight":{"input":1,"output":1},"refund_if":{"status_code":[4,5]}`},
		{`"usage":"openai","weight":{"input":2}`, `"usage":"openai","weight":{"input":2.0,"cached":2,"output":1}`},
		{`"header":"X-Units","on_missing":0`, `"header":"x-units","on_missing":"refund"`},
		{`"json":"units","on_missing":7,"max":"100"`, `"json":"units","on_missing":"07","max":100`},
	} {
		_, ctx := New(t, zone(same[0]))
		if _, err := Another(ctx, zone(same[1])); err != nil {
			t.Errorf("%s beside %s: %v", same[1], same[0], err)
		}
	}
	_, ctx := New(t, zone(`"usage":"openai"`))
	if _, err := Another(ctx, zone(`"usage":"anthropic"`)); err == nil || !strings.Contains(err.Error(), "defined twice, and not the same") {
		t.Errorf("anthropic beside openai: got %v, want it refused", err)
	}
}
