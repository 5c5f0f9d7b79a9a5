package usage_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	ofJSON   = "application/json"
	ofEvents = "text/event-stream; charset=utf-8"
)

// path returns the Source of a path.
func path(t testing.TB, p string) *usage.Source {
	t.Helper()
	s, err := usage.Path(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answers are whole answers and what they cost.
func answers(t testing.TB) []answer {
	return []answer{
		{"chat", usage.OpenAI(), ofJSON, chat, usage.Result{Input: 19, Cached: 16, Output: 10}},
		{"responses", usage.OpenAI(), "application/json; charset=utf-8", responses, usage.Result{Input: 36, Cached: 4, Output: 87}},
		{"usage first", usage.OpenAI(), ofJSON, `{"usage":{"completion_tokens":2,"prompt_tokens":1},"choices":[]}`, usage.Result{Input: 1, Output: 2}},
		{"embeddings", usage.OpenAI(), ofJSON, `{"data":[{"embedding":[0.1,-2e-5]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`, usage.Result{Input: 8}},
		{"no content type", usage.OpenAI(), "", `{"usage":{"completion_tokens":2,"prompt_tokens":1}}`, usage.Result{Input: 1, Output: 2}},
		{"names with escapes", usage.OpenAI(), ofJSON, `{"us\u0061ge":{"prompt\u005ftokens":1,"completion_tokens":2}}`, usage.Result{Input: 1, Output: 2}},
		{"white space", usage.OpenAI(), ofJSON, "\r\n{ \"usage\" :\t{ \"prompt_tokens\" : 1 , \"completion_tokens\" :\n2 } }\n", usage.Result{Input: 1, Output: 2}},
		{"usage in a text", usage.OpenAI(), ofJSON, `{"a":"\"usage\":{\"prompt_tokens\":7}","usage":{"prompt_tokens":1},"b":"\\"}`, usage.Result{Input: 1}},
		{"usage inside others", usage.OpenAI(), ofJSON, `{"a":{"usage":{"prompt_tokens":7}},"b":[{"usage":{"prompt_tokens":8}}],"usage":{"prompt_tokens":1,"x":{"prompt_tokens":9}}}`, usage.Result{Input: 1}},
		{"larger usage wins", usage.OpenAI(), ofJSON, `{"usage":{"prompt_tokens":1,"completion_tokens":3},"usage":{"prompt_tokens":2,"completion_tokens":4}}`, usage.Result{Input: 2, Output: 4}},
		{"a total only", usage.OpenAI(), ofJSON, `{"usage":{"total_tokens":17}}`, usage.Result{Input: 17}},
		{"a total and the input", usage.OpenAI(), ofJSON, `{"usage":{"prompt_tokens":10,"total_tokens":17}}`, usage.Result{Input: 10, Output: 7}},
		{"a total and the output", usage.OpenAI(), ofJSON, `{"usage":{"completion_tokens":10,"total_tokens":17}}`, usage.Result{Input: 7, Output: 10}},
		{"a total beside both", usage.OpenAI(), ofJSON, `{"usage":{"total_tokens":99,"prompt_tokens":1,"completion_tokens":2}}`, usage.Result{Input: 1, Output: 2}},
		{"a total below its parts", usage.OpenAI(), ofJSON, `{"usage":{"prompt_tokens":10,"total_tokens":0}}`, usage.Result{Input: 10}},
		{"a total in a stream", usage.OpenAI(), ofEvents, "data: {\"usage\":{\"total_tokens\":17}}\n\ndata: [DONE]\n\n", usage.Result{Input: 17}},
		{"null does not win", usage.OpenAI(), ofJSON, `{"usage":{"prompt_tokens":1},"usage":null}`, usage.Result{Input: 1}},
		{"beyond 2^53", usage.OpenAI(), ofJSON, `{"usage":{"prompt_tokens":9007199254740993,"completion_tokens":1e999}}`, usage.Result{Input: usage.MaxCount, Output: usage.MaxCount}},
		{"floats", usage.OpenAI(), ofJSON, `{"usage":{"prompt_tokens":10.0,"completion_tokens":1.25e1}}`, usage.Result{Input: 10, Output: 13}},
		{"negative and text", usage.OpenAI(), ofJSON, `{"usage":{"prompt_tokens":-5,"input_tokens":"7","completion_tokens":3}}`, usage.Result{Output: 3}},
		{"more cached than read", usage.OpenAI(), ofJSON, `{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":9}}}`, usage.Result{Input: 5, Cached: 5}},
		{"chat stream", usage.OpenAI(), ofEvents, chatStream, usage.Result{Input: 19, Output: 10}},
		{"chat stream, carriage returns", usage.OpenAI(), ofEvents, strings.ReplaceAll(chatStream, "\n", "\r"), usage.Result{Input: 19, Output: 10}},
		{"chat stream, both", usage.OpenAI(), ofEvents, strings.ReplaceAll(chatStream, "\n", "\r\n"), usage.Result{Input: 19, Output: 10}},
		{"usage in every event", usage.OpenAI(), ofEvents, everyStream, usage.Result{Input: 19, Output: 3}},
		{"responses stream", usage.OpenAI(), ofEvents, responsesStream, usage.Result{Input: 37, Output: 11}},
		{"data in two lines", usage.OpenAI(), ofEvents, "data:{\"usage\":\ndata: {\"prompt_tokens\":1}}\n\ndata:[DONE]\n\n", usage.Result{Input: 1}},
		{"byte order mark", usage.OpenAI(), ofEvents, "\ufeffdata: {\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n", usage.Result{Input: 1}},
		{"message", usage.Anthropic(), ofJSON, message, usage.Result{Input: 2095 + 100 + 900, Cached: 900, Output: 503}},
		{"message stream", usage.Anthropic(), ofEvents, messageStream, usage.Result{Input: 25 + 7 + 8, Cached: 8, Output: 15}},
		{"input in message_delta", usage.Anthropic(), ofEvents, deltaStream, usage.Result{Input: 472, Output: 89}},
		{"path", path(t, "meta.cost"), ofJSON, `{"meta":{"x":[],"cost":12}}`, usage.Result{Input: 12}},
		{"path with a position", path(t, "steps.1.cost"), ofJSON, `{"steps":[{"cost":1},{"cost":2.5}]}`, usage.Result{Input: 3}},
		{"path with a query", path(t, `meta.steps.#(name=="b").cost`), ofJSON, `{"meta":{"steps":[{"name":"a","cost":1},{"name":"b","cost":2}]}}`, usage.Result{Input: 2}},
		{"path, lines", path(t, "eval_count"), "application/x-ndjson", "{\"done\":false}\n{\"done\":true,\"eval_count\":298}\n", usage.Result{Input: 298}},
		{"path, stream", path(t, "usageMetadata.totalTokenCount"), ofEvents, "data: {\"usageMetadata\":{\"totalTokenCount\":3}}\n\ndata: {\"usageMetadata\":{\"totalTokenCount\":30}}\n\n", usage.Result{Input: 30}},
	}
}

type answer struct {
	name   string
	source *usage.Source
	mime   string
	body   string
	want   usage.Result
}

// encoders compress, and flush after every write as a proxy does.
var encoders = map[string]func(w io.Writer) interface {
	io.WriteCloser
	Flush() error
}{
	"gzip": func(w io.Writer) interface {
		io.WriteCloser
		Flush() error
	} {
		return gzip.NewWriter(w)
	},
	"zstd": func(w io.Writer) interface {
		io.WriteCloser
		Flush() error
	} {
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
		if err != nil {
			panic(err)
		}
		return z
	},
}

// encode returns a body in a coding, flushed every few bytes.
func encode(t testing.TB, coding, body string) string {
	t.Helper()
	if coding == "" {
		return body
	}
	var b bytes.Buffer
	w := encoders[coding](&b)
	for len(body) > 0 {
		n := min(100, len(body))
		io.WriteString(w, body[:n])
		w.Flush()
		body = body[n:]
	}
	w.Close()
	return b.String()
}

// write writes s in pieces of n bytes.
func write(t testing.TB, r *usage.Reader, s string, n int) {
	t.Helper()
	for len(s) > 0 {
		n := min(n, len(s))
		if m, err := r.Write([]byte(s[:n])); m != n || err != nil {
			t.Fatalf("Write of %d bytes: %d, %v", n, m, err)
		}
		s = s[n:]
	}
}

// stride is how far apart the cuts of an answer are: every byte without a coding, and for
// one answer of each kind with it.
func stride(a answer, coding string) int {
	if coding == "" || a.name == "chat" || a.name == "message stream" {
		return 1
	}
	return 29
}

// Whole answers give their figures, in every coding, in two pieces and in pieces of one
// byte. A Reader does not retain what it was given.
func TestReader(t *testing.T) {
	for _, a := range answers(t) {
		for _, coding := range []string{"", "gzip", "zstd"} {
			t.Run(a.name+" "+coding, func(t *testing.T) {
				body := encode(t, coding, a.body)
				check := func(what string, pieces ...string) {
					t.Helper()
					r := a.source.NewReader(a.mime, coding)
					for _, piece := range pieces {
						p := []byte(piece)
						r.Write(p)
						clear(p)
					}
					if got := r.Done(true); got != a.want {
						t.Fatalf("%s: %+v, want %+v", what, got, a.want)
					}
				}
				check("at once", body)
				check("by bytes", strings.Split(body, "")...)
				for i := 0; i < len(body); i += stride(a, coding) {
					check(fmt.Sprint("cut at ", i), body[:i], body[i:])
				}
			})
		}
	}
}

// An answer that ends too early has figures only if they are final. What was seen until
// then is not above the truth.
func TestTruncated(t *testing.T) {
	for _, a := range answers(t) {
		for _, coding := range []string{"", "gzip", "zstd"} {
			body := encode(t, coding, a.body)
			for i := 0; i < len(body); i += stride(a, coding) {
				r := a.source.NewReader(a.mime, coding)
				write(t, r, body[:i], 64)
				got := r.Done(false)
				if got.Missing == "" && (got.Input != a.want.Input || got.Output != a.want.Output) && a.name != "larger usage wins" {
					t.Errorf("%s %s: %d of %d bytes give %+v as final", a.name, coding, i, len(body), got)
				}
				if got.Input > a.want.Input || got.Output > a.want.Output {
					t.Errorf("%s %s: %d of %d bytes give %+v, above the truth", a.name, coding, i, len(body), got)
				}
				if got != r.Done(true) {
					t.Error("the second call of Done differs")
				}
			}
		}
	}
}

// Who can put a text of his own into an answer, beside the usage or as a second JSON text, does not make it cheaper.
func TestDecoys(t *testing.T) {
	const real, zero = `"usage":{"prompt_tokens":1000,"completion_tokens":50}`, `"usage":{"prompt_tokens":0,"completion_tokens":0}`
	const cached = `"usage":{"prompt_tokens":1000,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":1000}}`
	const message, little = `"usage":{"input_tokens":1000,"output_tokens":50}`, `"usage":{"input_tokens":1,"output_tokens":1}`
	want := usage.Result{Input: 1000, Output: 50}
	for _, test := range []struct {
		name   string
		source *usage.Source
		mime   string
		body   string
	}{
		{"a second text", usage.OpenAI(), ofJSON, `{` + real + `}{` + zero + `}`},
		{"a first text", usage.OpenAI(), ofJSON, `{` + zero + `}{` + real + `}`},
		{"a second text, all cached", usage.OpenAI(), ofJSON, `{` + real + `}{` + cached + `}`},
		{"a response", usage.OpenAI(), ofJSON, `{` + real + `,"response":{` + zero + `}}`},
		{"a larger response", usage.OpenAI(), ofJSON, `{` + real + `,"response":{"usage":{"prompt_tokens":5000}}}`},
		{"a response before", usage.OpenAI(), ofJSON, `{"response":{` + cached + `},` + real + `}`},
		{"a response of the other API", usage.OpenAI(), ofJSON, `{` + real + `,"response":{"usage":{"input_tokens":0,"output_tokens":0}}}`},
		{"the same name", usage.OpenAI(), ofJSON, `{` + real + `,` + zero + `}`},
		{"a total", usage.OpenAI(), ofJSON, `{` + real + `,"usage":{"total_tokens":0}}`},
		{"only in a response", usage.OpenAI(), ofJSON, `{"response":{` + real + `}}`},
		{"an event", usage.OpenAI(), ofEvents, "data: {" + real + "}\n\ndata: {" + zero + "}\n\ndata: [DONE]\n\n"},
		{"a response in an event", usage.OpenAI(), ofEvents, "data: {" + real + `,"response":{` + zero + "}}\n\ndata: [DONE]\n\n"},
		{"usage beside a response", usage.OpenAI(), ofEvents, `data: {"type":"response.completed","response":{` + real + "}," + zero + "}\n\n"},
		{"two texts in an event", usage.OpenAI(), ofEvents, "data: {" + real + "}\ndata: {" + zero + "}\n\ndata: [DONE]\n\n"},
		{"a second message", usage.Anthropic(), ofJSON, `{` + message + `}{` + little + `}`},
		{"a message in a message", usage.Anthropic(), ofJSON, `{` + message + `,"message":{` + little + `}}`},
		{"a message in an event", usage.Anthropic(), ofEvents, `data: {"type":"message_delta",` + message + `,"message":{` + little + "}}\n\ndata: {\"type\":\"message_stop\"}\n\n"},
	} {
		for _, piece := range []int{1, 1000} {
			r := test.source.NewReader(test.mime, "")
			write(t, r, test.body, piece)
			if got := r.Done(true); got != want {
				t.Errorf("%s: %+v, want %+v", test.name, got, want)
			}
		}
	}
}

// The client hangs up before the usage event: the few tokens of message_start are not what
// the answer cost.
func TestClientHangsUpBeforeTheUsageEvent(t *testing.T) {
	before, _, _ := strings.Cut(messageStream, "event: message_delta")
	r := usage.Anthropic().NewReader(ofEvents, "")
	write(t, r, before, 50)
	if got := r.Done(false); got.Missing != usage.Aborted || got.Input != 40 || got.Output != 1 {
		t.Errorf("Anthropic: %+v", got)
	}
	before, _, _ = strings.Cut(everyStream, "data: [DONE]")
	r = usage.OpenAI().NewReader(ofEvents, "")
	write(t, r, before, 50)
	if got := r.Done(false); got.Missing != usage.Aborted || got.Output != 3 {
		t.Errorf("OpenAI: %+v", got)
	}
}

// A stream that has no last event is final if its sender ended it, unless it ended before
// the totals.
func TestStreamWithoutLastEvent(t *testing.T) {
	for _, test := range []struct {
		source *usage.Source
		stream string
		want   usage.Reason
	}{
		{usage.OpenAI(), "data: {\"usage\":{\"prompt_tokens\":1}}\n\n", ""},
		{usage.OpenAI(), "data: {\"usage\":{\"prompt_tokens\":1}}", ""}, // it lacks the empty line
		{usage.OpenAI(), "data: {\"usage\":{\"prompt_tokens\":1}", usage.Aborted},
		{usage.OpenAI(), "data: {\"choices\":[]}\n\n", usage.NoUsage},
		{usage.OpenAI(), "", usage.NoUsage},
		{usage.Anthropic(), "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\ndata: {\"type\":\"error\"}\n\n", usage.Aborted},
		{usage.Anthropic(), "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":1}}\n\n", ""},
		{usage.Anthropic(), "data: {\"type\":\"error\"}\n\n", usage.NoUsage},
	} {
		r := test.source.NewReader(ofEvents, "")
		write(t, r, test.stream, 7)
		if got := r.Done(true); got.Missing != test.want {
			t.Errorf("%q: %+v, want %q", test.stream, got, test.want)
		}
	}
}

// An answer without figures says why.
func TestMissing(t *testing.T) {
	deep := strings.Repeat(`[`, 200) + strings.Repeat(`]`, 200)
	for _, test := range []struct {
		name, mime, coding, body string
		source                   *usage.Source
		whole                    bool
		want                     usage.Reason
	}{
		{"no usage", ofJSON, "", `{"choices":[]}`, usage.OpenAI(), true, usage.NoUsage},
		{"no usage, aborted later", ofJSON, "", `{"choices":[]}`, usage.OpenAI(), false, usage.NoUsage},
		{"null", ofJSON, "", `{"usage":null}`, usage.OpenAI(), true, usage.NoUsage},
		{"array", ofJSON, "", `[{"usage":{"prompt_tokens":1}}]`, usage.OpenAI(), true, usage.NoUsage},
		{"empty", ofJSON, "", ``, usage.OpenAI(), true, usage.NoUsage},
		{"empty, compressed", ofJSON, "gzip", ``, usage.OpenAI(), true, usage.NoUsage},
		{"empty, aborted", ofJSON, "", ``, usage.OpenAI(), false, usage.Aborted},
		{"no JSON", ofJSON, "", `bad gateway`, usage.OpenAI(), true, usage.NoUsage},
		{"page", "text/html", "", `{"usage":{"prompt_tokens":1}}`, usage.OpenAI(), true, usage.NoUsage},
		{"cut", ofJSON, "", `{"usage":{"prompt_tokens":1}`, usage.OpenAI(), true, usage.Aborted},
		{"cut in a text", ofJSON, "", `{"usage":{"prompt_tokens":1},"a":"`, usage.OpenAI(), true, usage.Aborted},
		{"brotli", ofJSON, "br", `{"usage":{"prompt_tokens":1}}`, usage.OpenAI(), true, usage.Encoded},
		{"twice", ofJSON, "gzip, gzip", `{"usage":{"prompt_tokens":1}}`, usage.OpenAI(), true, usage.Encoded},
		{"not gzip", ofJSON, "gzip", `{"usage":{"prompt_tokens":1}}`, usage.OpenAI(), true, usage.Encoded},
		{"not zstd", ofJSON, "zstd", `{"usage":{"prompt_tokens":1}}`, usage.OpenAI(), true, usage.Encoded},
		{"value too long", ofJSON, "", `{"a":["` + strings.Repeat("x", 70_000) + `",{"b":1}]}`, path(t, "a.1.b"), true, usage.TooLong},
		{"value too deep", ofJSON, "", `{"a":[` + deep + `,{"b":1}]}`, path(t, "a.1.b"), true, usage.TooLong},
		{"value is not JSON", ofJSON, "", `{"a":[{],{"b":1}]}`, path(t, "a.1.b"), true, usage.NoUsage},
		{"value is a text", ofJSON, "", `{"a":"1"}`, path(t, "a"), true, usage.NoUsage},
	} {
		t.Run(test.name, func(t *testing.T) {
			for n := range 40 {
				r := test.source.NewReader(test.mime, test.coding)
				write(t, r, test.body, n*n+1)
				if got := r.Done(test.whole); got.Missing != test.want {
					t.Fatalf("%+v, want %q", got, test.want)
				}
			}
		})
	}
}

// Content-Encoding and Content-Type are read in any case.
func TestFields(t *testing.T) {
	const body = `{"usage":{"prompt_tokens":1}}`
	for _, test := range []struct{ mime, field, coding string }{
		{"APPLICATION/JSON ; charset=utf-8", "Identity", ""},
		{"application/problem+json", " GZIP ", "gzip"},
		{"text/json", "x-gzip", "gzip"},
		{ofJSON, "ZSTD", "zstd"},
	} {
		r := usage.OpenAI().NewReader(test.mime, test.field)
		write(t, r, encode(t, test.coding, body), 10)
		if got := r.Done(true); got != (usage.Result{Input: 1}) {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}

// Two figures of one answer may be added with weights, which round up once.
func TestWeights(t *testing.T) {
	for _, test := range []struct {
		weights usage.Weights
		result  usage.Result
		want    int64
	}{
		{usage.Weights{Input: 1, Cached: 1, Output: 1}, usage.Result{Input: 10, Cached: 4, Output: 5}, 15},
		{usage.Weights{Input: 1, Cached: 0.1, Output: 3}, usage.Result{Input: 10, Cached: 4, Output: 5}, 22},
		{usage.Weights{Output: 0.1}, usage.Result{Input: 10, Output: 30}, 3}, // 0.1 * 30 is above 3 in floats
		{usage.Weights{Input: 1, Output: 2.5}, usage.Result{Input: 10, Output: 3}, 18},
		{usage.Weights{}, usage.Result{Input: 10, Output: 3}, 0},
		{
			usage.Weights{Input: usage.MaxWeight, Cached: usage.MaxWeight, Output: usage.MaxWeight},
			usage.Result{Input: usage.MaxCount, Cached: 1, Output: usage.MaxCount},
			2 * usage.MaxCount * usage.MaxWeight,
		},
	} {
		if err := test.weights.Check(); err != nil {
			t.Error(err)
		}
		if got := test.weights.Units(test.result); got != test.want {
			t.Errorf("%+v of %+v: %d, want %d", test.weights, test.result, got, test.want)
		}
	}
	nan := 0.0
	for _, w := range []usage.Weights{{Input: -1}, {Output: 1001}, {Cached: nan / nan}} {
		if w.Check() == nil {
			t.Errorf("%+v passes", w)
		}
	}
}

// Paths that cannot be followed while the answer passes are refused.
func TestPathRefused(t *testing.T) {
	for _, p := range []string{"", ".", "0", "0.a", "#.a", "..a", "@this", "*", ".a", "a?b"} {
		if _, err := usage.Path(p); err == nil {
			t.Errorf("path %q is not refused", p)
		}
	}
}

// Writes after Done do nothing, and start nothing.
func TestWriteAfterDone(t *testing.T) {
	for _, coding := range []string{"", "gzip", "zstd"} {
		for _, before := range []string{"", "{"} {
			r := usage.OpenAI().NewReader(ofJSON, coding)
			write(t, r, encode(t, coding, before), 1)
			r.Done(false)
			write(t, r, encode(t, coding, chat), 10)
			if got := r.Done(true); got != (usage.Result{Missing: usage.Aborted}) {
				t.Errorf("%q after %q: %+v", coding, before, got)
			}
		}
	}
}

// A handler that writes from two goroutines gets no good result, but no panic either.
func TestConcurrent(t *testing.T) {
	for _, coding := range []string{"", "gzip", "zstd"} {
		r := usage.OpenAI().NewReader(ofJSON, coding)
		body := encode(t, coding, chat)
		done := make(chan bool)
		for range 3 {
			go func() {
				for range 20 {
					r.Write([]byte(body))
				}
				done <- true
			}()
		}
		<-done
		r.Done(true)
		<-done
		<-done
	}
}

// Broken bytes of a coding never panic, and never leave the goroutine behind.
func TestBroken(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, coding := range []string{"gzip", "zstd"} {
		for _, a := range answers(t) {
			body := []byte(encode(t, coding, a.body))
			for range 50 {
				broken := bytes.Clone(body)
				for range 1 + random.IntN(4) {
					broken[random.IntN(len(broken))] ^= byte(1 + random.IntN(255))
				}
				r := a.source.NewReader(a.mime, coding)
				write(t, r, string(broken), 1+random.IntN(100))
				r.Done(random.IntN(2) == 0)
			}
		}
	}
}
