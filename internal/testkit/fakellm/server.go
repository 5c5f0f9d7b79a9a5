package fakellm

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Handler returns the back end: POST /v1/chat/completions, /v1/responses and /v1/messages.
// An answer without a pace of its own has this one.
func Handler(pace time.Duration) http.Handler {
	mux := http.NewServeMux()
	for path, api := range map[string]api{"/v1/chat/completions": chat{}, "/v1/responses": responses{}, "/v1/messages": messages{}} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			a, err := read(r, pace)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			a.serve(w, r, api)
		})
	}
	return mux
}

// answer is what an answer is like.
type answer struct {
	input, output, cached int
	usage                 bool
	stream, includeUsage  bool
	pace                  time.Duration
	status                int
	abort                 int // -1: never
	coding                string
}

// request is what is read from the body of a request.
type request struct {
	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	MaxOutputTokens     int `json:"max_output_tokens"`
}

// read reads a request.
func read(r *http.Request, pace time.Duration) (answer, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil {
		return answer{}, err
	}
	var asked request
	if err := json.Unmarshal(body, &asked); err != nil {
		return answer{}, fmt.Errorf("the body is not a request: %w", err)
	}
	output := 20
	if most := max(asked.MaxTokens, asked.MaxCompletionTokens, asked.MaxOutputTokens); most > 0 {
		output = min(output, most)
	}
	q := query{values: r.URL.Query()}
	a := answer{
		input: q.int("input", len(body)/4), output: q.int("output", output), cached: q.int("cached", 0),
		usage: q.values.Get("usage") != "no", stream: asked.Stream, includeUsage: asked.StreamOptions.IncludeUsage,
		pace: q.duration("pace", pace), status: q.int("status", http.StatusOK), abort: q.int("abort", -1),
		coding: q.values.Get("coding"),
	}
	if a.status < 200 || a.status > 999 || a.output < 0 || a.output > 1_000_000 {
		q.err = fmt.Errorf("status %d or output %d is out of range", a.status, a.output)
	}
	return a, q.err
}

// query reads the values of a query, and keeps the last error.
type query struct {
	values url.Values
	err    error
}

func (q *query) int(name string, otherwise int) int {
	if !q.values.Has(name) {
		return otherwise
	}
	n, err := strconv.Atoi(q.values.Get(name))
	if err != nil {
		q.err = fmt.Errorf("%s: %w", name, err)
	}
	return n
}

func (q *query) duration(name string, otherwise time.Duration) time.Duration {
	if !q.values.Has(name) {
		return otherwise
	}
	d, err := time.ParseDuration(q.values.Get(name))
	if err != nil {
		q.err = fmt.Errorf("%s: %w", name, err)
	}
	return d
}

// api writes the answers of an API.
type api interface {
	whole(a answer) object                  // an answer that is not streamed
	first(a answer) []object                // the events before the text
	word(a answer, n int) []object          // the events of a token
	last(a answer) (_ []object, end string) // the events after the text, and data that is not JSON
	failed(status int) object
}

// object is a JSON object. An event has its type in "type".
type object = map[string]any

// serve writes the answer.
func (a answer) serve(w http.ResponseWriter, r *http.Request, api api) {
	out, err := a.encode(w)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if a.stream && a.status == http.StatusOK {
		a.events(out, r, api)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	var text []byte
	if a.status == http.StatusOK {
		text, _ = json.Marshal(api.whole(a)) // an object of texts and numbers
	} else {
		text, _ = json.Marshal(api.failed(a.status))
	}
	if a.abort >= 0 {
		_, _ = out.Write(text[:len(text)/2])
		out.flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = out.Write(text)
	out.close()
}

// events streams the answer, and flushes each event.
func (a answer) events(out *output, r *http.Request, api api) {
	out.w.Header().Set("Content-Type", "text/event-stream")
	sent := 0
	send := func(events ...object) bool {
		for _, event := range events {
			if sent == a.abort {
				panic(http.ErrAbortHandler)
			}
			if sent > 0 && a.pace > 0 {
				select {
				case <-time.After(a.pace):
				case <-r.Context().Done():
					return false
				}
			}
			if name, ok := event["type"]; ok {
				fmt.Fprintf(out, "event: %s\n", name)
			}
			text, _ := json.Marshal(event)
			if _, err := fmt.Fprintf(out, "data: %s\n\n", text); err != nil {
				return false
			}
			out.flush()
			sent++
		}
		return true
	}
	if !send(api.first(a)...) {
		return
	}
	for n := range a.output {
		if !send(api.word(a, n)...) {
			return
		}
	}
	last, end := api.last(a)
	if !send(last...) {
		return
	}
	if end != "" {
		fmt.Fprintf(out, "data: %s\n\n", end)
	}
	out.close()
}

// output is where an answer is written, compressed or not.
type output struct {
	io.Writer
	w       http.ResponseWriter
	encoder interface {
		Flush() error
		Close() error
	}
}

func (a answer) encode(w http.ResponseWriter) (*output, error) {
	out := &output{Writer: w, w: w}
	switch a.coding {
	case "":
		return out, nil
	case "gzip":
		z := gzip.NewWriter(w)
		out.Writer, out.encoder = z, z
	case "zstd":
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
		if err != nil {
			return nil, err
		}
		out.Writer, out.encoder = z, z
	default:
		return nil, fmt.Errorf("coding %q is not known; use gzip or zstd", a.coding)
	}
	w.Header().Set("Content-Encoding", a.coding)
	return out, nil
}

// flush sends what was written to the client.
func (o *output) flush() {
	if o.encoder != nil {
		_ = o.encoder.Flush() // the client is gone
	}
	_ = http.NewResponseController(o.w).Flush()
}

func (o *output) close() {
	if o.encoder != nil {
		_ = o.encoder.Close()
	}
}
