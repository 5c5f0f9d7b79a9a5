package fakellm_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakellm"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// asked are the bodies of requests.
const (
	asked         = `{"max_tokens":12}`
	askedStream   = `{"stream":true,"stream_options":{"include_usage":true}}`
	askedNoOption = `{"stream":true}`
)

var apis = map[string]*usage.Source{
	"/v1/chat/completions": usage.OpenAI(),
	"/v1/responses":        usage.OpenAI(),
	"/v1/messages":         usage.Anthropic(),
}

// post returns the answer, and what a Reader makes of it.
func post(t *testing.T, server *httptest.Server, path, query, body string) (*http.Response, usage.Result) {
	t.Helper()
	r, err := http.NewRequest("POST", server.URL+path+"?"+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "identity") // the transport must not decode
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	reader := apis[path].NewReader(answer.Header.Get("Content-Type"), answer.Header.Get("Content-Encoding"))
	_, err = io.Copy(reader, answer.Body)
	return answer, reader.Done(err == nil)
}

func start(t *testing.T) *httptest.Server {
	server := httptest.NewServer(fakellm.Handler(0))
	t.Cleanup(server.Close)
	return server
}

// The usage of every API is read in every coding, streamed or not.
func TestUsage(t *testing.T) {
	server := start(t)
	want := usage.Result{Input: 190, Cached: 60, Output: 300}
	for path := range apis {
		for _, coding := range []string{"", "gzip", "zstd"} {
			for _, body := range []string{asked, askedStream} {
				_, got := post(t, server, path, "input=190&cached=60&output=300&coding="+coding, body)
				if got != want {
					t.Errorf("%s %s %s: %+v, want %+v", path, coding, body, got, want)
				}
			}
		}
	}
}

// Without a query, the request decides.
func TestAsked(t *testing.T) {
	_, got := post(t, start(t), "/v1/chat/completions", "", asked)
	if want := (usage.Result{Input: int64(len(asked) / 4), Output: 12}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What goes wrong is seen as such.
func TestFaults(t *testing.T) {
	server := start(t)
	for path := range apis {
		for _, coding := range []string{"", "gzip", "zstd"} {
			for _, test := range []struct {
				query, body string
				want        usage.Reason
			}{
				{"usage=no", asked, usage.NoUsage},
				{"usage=no", askedStream, usage.NoUsage},
				{"status=500", asked, usage.NoUsage},
				{"status=529", askedStream, usage.NoUsage},
				{"abort=2", asked, usage.Aborted},
				{"abort=4", askedStream, usage.Aborted},
			} {
				answer, got := post(t, server, path, test.query+"&coding="+coding, test.body)
				if got.Missing != test.want {
					t.Errorf("%s %s %+v: %d, %+v", path, coding, test, answer.StatusCode, got)
				}
			}
		}
	}
	if _, got := post(t, server, "/v1/chat/completions", "", askedNoOption); got.Missing != usage.NoUsage {
		t.Errorf("a stream of chat completions has a usage that was not asked for: %+v", got)
	}
}

// A request that makes no sense is refused.
func TestRefused(t *testing.T) {
	server := start(t)
	for _, query := range []string{"status=1", "output=x", "pace=x", "coding=br", "output=-1"} {
		if answer, _ := post(t, server, "/v1/messages", query, asked); answer.StatusCode != http.StatusBadRequest {
			t.Error(query, fmt.Sprint(answer.StatusCode))
		}
	}
	if answer, _ := post(t, server, "/v1/messages", "", "no JSON"); answer.StatusCode != http.StatusBadRequest {
		t.Error(answer.Status)
	}
}
