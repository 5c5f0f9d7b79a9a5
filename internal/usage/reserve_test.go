package usage_test

import (
	"errors"
	"io"
	"math"
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

// An estimate is the largest of the fields, at least 1 and at most the given maximum. The
// body is read again from its beginning.
func TestEstimate(t *testing.T) {
	for _, test := range []struct {
		name, body string
		most, want int64
	}{
		{"one", `{"max_tokens":50}`, 1000, 50},
		{"max_tokens 1 beside a large max_completion_tokens", `{"max_tokens":1,"max_completion_tokens":900}`, 1000, 900},
		{"max_output_tokens of the Responses API", `{"max_output_tokens":70}`, 1000, 70},
		{"capped at the smallest limit", `{"max_tokens":100000}`, 600, 600},
		{"beyond 2^53", `{"max_tokens":1e300}`, math.MaxInt64, usage.MaxCount},
		{"never below 1", `{"max_tokens":0}`, 1000, 1},
		{"the same name twice", `{"max_tokens":900,"max_tokens":1}`, 1000, 900},
		{"other case", `{"Max_Tokens":900,"max_tokens":1}`, 1000, 900},
		{"escapes", `{"max\u005Ftokens":900,"max_tokens":1}`, 1000, 900},
		{"text", `{"max_tokens":" 9\u00300 "}`, 1000, 900},
		{"float", `{"max_tokens":12.5}`, 1000, 13},
		{"path", `{"options":{"num_predict":5}}`, 1000, 5},
		{"after a long text", `{"messages":"` + strings.Repeat("x", 200_000) + `","max_tokens":5}`, 1000, 5},
		{"negative", `{"max_tokens":-1}`, 1000, 0},
		{"null", `{"max_tokens":null}`, 1000, 0},
		{"inside others", `{"a":{"max_tokens":5},"b":[{"max_tokens":5}]}`, 1000, 0},
		{"array", `[{"max_tokens":5}]`, 1000, 0},
		{"no JSON", `max_tokens=5`, 1000, 0},
		{"after 256 KiB", `{"messages":"` + strings.Repeat("x", usage.MaxBody) + `","max_tokens":5}`, 1000, 0},
		{"exactly 256 KiB", strings.Repeat(" ", usage.MaxBody-len(`{"max_tokens":5}`)) + `{"max_tokens":5}`, 1000, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, announced := range []bool{true, false} {
				r := httptest.NewRequest("POST", "/", iotest.HalfReader(strings.NewReader(test.body)))
				if announced {
					r.ContentLength = int64(len(test.body))
				}
				f := fields(t, append(openAIFields, "options.num_predict")...)
				got, found := f.Estimate(r, test.most)
				if found != (test.want > 0) || found && got != test.want {
					t.Errorf("%d, %v, want %d", got, found, test.want)
				}
				body, err := io.ReadAll(iotest.OneByteReader(r.Body))
				if string(body) != test.body || err != nil {
					t.Errorf("then %d bytes are read, want %d: %v", len(body), len(test.body), err)
				}
			}
		})
	}
}

// endless is a body that must not be read.
type endless struct{ t *testing.T }

func (e endless) Read([]byte) (int, error) {
	e.t.Error("the body is read")
	return 0, io.EOF
}

// Bodies that go on while the answer does, and encoded ones, are left alone.
func TestEstimateLeavesAlone(t *testing.T) {
	for _, change := range []func(r *http.Request){
		func(r *http.Request) { r.Method = http.MethodConnect },
		func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		func(r *http.Request) { r.Header.Set("Content-Type", "application/grpc+proto") },
		func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
		func(r *http.Request) { r.Body = http.NoBody },
		func(r *http.Request) { r.Body = nil },
	} {
		r := httptest.NewRequest("POST", "/", endless{t})
		change(r)
		body := r.Body
		if _, found := fields(t, "max_tokens").Estimate(r, 10); found || r.Body != body {
			t.Errorf("%+v", r)
		}
	}
}

// closer says whether it was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

// What goes wrong with the body goes wrong for the back end, at the same byte.
func TestEstimateBodyFails(t *testing.T) {
	fails := errors.New("the client is gone")
	body := &closer{Reader: io.MultiReader(strings.NewReader(`{"max_tokens":5,`), iotest.ErrReader(fails))}
	r := httptest.NewRequest("POST", "/", nil)
	r.Body = body
	if got, found := fields(t, "max_tokens").Estimate(r, 10); got != 5 || !found {
		t.Errorf("%d, %v", got, found)
	}
	b, err := io.ReadAll(r.Body)
	if string(b) != `{"max_tokens":5,` || !errors.Is(err, fails) {
		t.Errorf("%q, %v", b, err)
	}
	if r.Body.Close(); !body.closed {
		t.Error("the body is not closed")
	}
	if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Error(err)
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
