package usage_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

func fields(t testing.TB, names ...string) *usage.Fields {
	t.Helper()
	f, err := usage.NewFields(names...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var openAIFields = []string{"max_tokens", "max_completion_tokens", "max_output_tokens"}

// estimate reads the start of the body of a request, and what it says.
func estimate(t testing.TB, f *usage.Fields, r *http.Request) usage.Estimate {
	t.Helper()
	if !usage.HasBody(r) {
		t.Fatal("the request has no body")
	}
	start, err := usage.ReadStart(r, true)
	if err != nil {
		t.Fatal(err)
	}
	return f.Estimate(r, start)
}

// An estimate is the largest of the fields, for all answers that are asked for. What is odd, or not read, makes it
// unsure. The body is read again from its beginning.
func TestEstimate(t *testing.T) {
	long := strings.Repeat("x", usage.MaxBody)
	for _, test := range []struct {
		name, body string
		want       int64
		sure       bool
	}{
		{"one", `{"max_tokens":50}`, 50, true},
		{"max_tokens 1 beside a large max_completion_tokens", `{"max_tokens":1,"max_completion_tokens":900}`, 900, true},
		{"max_output_tokens of the Responses API", `{"max_output_tokens":70}`, 70, true},
		{"beyond 2^53", `{"max_tokens":1e300}`, usage.MaxCount, true},
		{"the same name twice", `{"max_tokens":900,"max_tokens":1}`, 900, true},
		{"other case", `{"Max_Tokens":900,"max_tokens":1}`, 900, true},
		{"escapes", `{"max\u005Ftokens":900,"max_tokens":1}`, 900, true},
		{"text", `{"max_tokens":" 9\u00300 "}`, 900, true},
		{"float", `{"max_tokens":12.5}`, 13, true},
		{"path", `{"options":{"num_predict":5}}`, 5, true},
		{"after a long text", `{"messages":"` + long[:200_000] + `","max_tokens":5}`, 5, true},
		{"exactly 256 KiB", strings.Repeat(" ", usage.MaxBody-len(`{"max_tokens":5}`)) + `{"max_tokens":5}`, 5, false},
		{"a byte less", strings.Repeat(" ", usage.MaxBody-1-len(`{"max_tokens":5}`)) + `{"max_tokens":5}`, 5, true},

		{"0", `{"max_tokens":0}`, 0, false},
		{"0.0001", `{"max_tokens":0.0001}`, 0, false},
		{"1e-400", `{"max_tokens":1e-400}`, 0, false},
		{"negative", `{"max_tokens":-1}`, 0, false},
		{"null", `{"max_tokens":null}`, 0, false},
		{"null beside a number", `{"max_tokens":50,"max_tokens":null}`, 50, false},
		{"0 beside a number", `{"max_tokens":50,"max_completion_tokens":0}`, 50, false},
		{"an array beside a number", `{"max_tokens":50,"max_tokens":[900]}`, 50, false},
		{"an object beside a number", `{"max_tokens":50,"max_tokens":{"a":900}}`, 50, false},
		{"true beside a number", `{"max_tokens":50,"max_tokens":true}`, 50, false},
		{"words beside a number", `{"max_tokens":50,"max_tokens":"many"}`, 50, false},
		{"a long text beside a number", `{"max_tokens":50,"max_tokens":"` + strings.Repeat(" ", 70) + `900"}`, 50, false},
		{"a comment in a number", `{"max_tokens":50,"max_tokens":/**/900}`, 50, false},
		{"inside others", `{"a":{"max_tokens":5},"b":[{"max_tokens":5}]}`, 0, false},
		{"array", `[{"max_tokens":5}]`, 0, false},
		{"no JSON", `max_tokens=5`, 0, false},
		{"two texts", `{"max_tokens":5}{"max_tokens":900}`, 900, false},
		{"cut off", `{"max_tokens":5,`, 5, false},
		{"after 256 KiB", `{"messages":"` + long + `","max_tokens":5}`, 0, false},
		{"a decoy, and more after 256 KiB", `{"max_tokens":1,"messages":"` + long + `","max_tokens":900}`, 1, false},
		{"UTF-16", "{\x00\"\x00m\x00", 0, false},

		{"n", `{"max_tokens":50,"n":100}`, 5000, true},
		{"best_of", `{"max_tokens":50,"n":2,"best_of":100}`, 5000, true},
		{"n as a text", `{"max_tokens":50,"n":"100"}`, 5000, true},
		{"n twice", `{"max_tokens":50,"n":100,"N":1}`, 5000, true},
		{"n null", `{"max_tokens":50,"n":null}`, 50, true},
		{"n 0", `{"max_tokens":50,"n":0}`, 50, false},
		{"n in an array", `{"max_tokens":50,"n":[100]}`, 50, false},
		{"n beyond all", `{"max_tokens":50,"n":1e300}`, usage.MaxCount, true},
		{"a prompt", `{"max_tokens":50,"prompt":"100"}`, 50, true},
		{"prompts", `{"max_tokens":50,"prompt":["a","[b,","c\"}"]}`, 150, true},
		{"a prompt of tokens", `{"max_tokens":50,"prompt":[1,2,3]}`, 50, true},
		{"prompts of tokens", `{"max_tokens":50,"prompt":[[1,2],[3]]}`, 100, true},
		{"prompts and n", `{"prompt":["a","b"],"n":3,"max_tokens":50}`, 300, true},
		{"prompts twice", `{"prompt":["a","b"],"prompt":["a"],"max_tokens":50}`, 100, true},
		{"prompts inside others", `{"a":{"prompt":["a","b"],"n":5},"max_tokens":50}`, 50, true},
		{"prompts that go on", `{"max_tokens":50,"prompt":["a","b","` + long, 150, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, announced := range []bool{true, false} {
				r := httptest.NewRequest("POST", "/", iotest.HalfReader(strings.NewReader(test.body)))
				if announced {
					r.ContentLength = int64(len(test.body))
				}
				got := estimate(t, fields(t, append(openAIFields, "options.num_predict")...), r)
				if got.Output != test.want || got.Sure != test.sure || got.Size != int64(min(len(test.body), usage.MaxBody)) {
					t.Errorf("%+v, want %d, sure %v", got, test.want, test.sure)
				}
				body, err := io.ReadAll(iotest.OneByteReader(r.Body))
				if string(body) != test.body || err != nil {
					t.Errorf("then %d bytes are read, want %d: %v", len(body), len(test.body), err)
				}
			}
		})
	}
}

// A field that is named may be one of those that multiply others.
func TestEstimateOfTimes(t *testing.T) {
	r := httptest.NewRequest("POST", "/", strings.NewReader(`{"n":7,"best_of":2}`))
	if got := estimate(t, fields(t, "n"), r); got.Output != 14 || !got.Sure {
		t.Errorf("%+v, want 14", got)
	}
}

// Header fields by which a back end might read another body make an estimate unsure. The body is read all
// the same.
func TestEstimateOfOddHeaders(t *testing.T) {
	for _, header := range []http.Header{
		{"Upgrade": {"x"}},
		{"Upgrade": {"websocket"}, "Connection": {"upgrade"}},
		{"Content-Type": {"Application/grpc+proto"}},
		{"Content-Encoding": {"gzip"}},
		{"Content-Encoding": {"identity", "x"}},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(`{"max_tokens":900}`))
		r.Header = header
		if got := estimate(t, fields(t, "max_tokens"), r); got.Output != 900 || got.Sure {
			t.Errorf("%v: %+v, want 900 that are not sure", header, got)
		}
	}
}

// endless is a body that must not be read.
type endless struct{ t *testing.T }

func (e endless) Read([]byte) (int, error) {
	e.t.Error("the body is read")
	return 0, io.EOF
}

// Only bodies that may go on while the answer does are left alone.
func TestHasBody(t *testing.T) {
	for _, test := range []struct {
		change func(r *http.Request)
		want   bool
	}{
		{func(*http.Request) {}, true},
		{func(r *http.Request) { r.Method = http.MethodGet }, true},
		{func(r *http.Request) { r.Header = http.Header{"Upgrade": {"x"}, "Connection": {"x, upgrade"}} }, true},
		{func(r *http.Request) { r.Method, r.Header = http.MethodGet, http.Header{"Upgrade": {"x"}} }, true},
		{func(r *http.Request) {
			r.Method, r.Header = http.MethodGet, http.Header{"Upgrade": {"x"}, "Connection": {"close", "x, Upgrade"}}
		}, false},
		{func(r *http.Request) { r.Method = http.MethodConnect }, false},
		{func(r *http.Request) { r.Body = http.NoBody }, false},
		{func(r *http.Request) { r.Body = nil }, false},
	} {
		r := httptest.NewRequest("POST", "/", endless{t})
		test.change(r)
		if got := usage.HasBody(r); got != test.want {
			t.Errorf("%s %v: %v", r.Method, r.Header, got)
		}
	}
}

// Fields that cannot be found are refused.
func TestFieldsRefused(t *testing.T) {
	for _, names := range [][]string{{}, {""}, {"a", "#"}, {"a.0"}, {"a.*"}, {"."}} {
		if _, err := usage.NewFields(names...); err == nil {
			t.Errorf("%q is not refused", names)
		}
	}
}
