package usage_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

// checkPieces reports a body whose figures depend on the pieces it comes in, and figures
// out of range.
func checkPieces(t *testing.T, source *usage.Source, mime, coding, body string, cut uint16, whole bool) usage.Result {
	t.Helper()
	r := source.NewReader(mime, coding)
	write(t, r, body, len(body)+1)
	want := r.Done(whole)
	if min(want.Input, want.Cached, want.Output) < 0 || want.Cached > want.Input || max(want.Input, want.Output) > usage.MaxCount {
		t.Fatalf("%+v", want)
	}
	r = source.NewReader(mime, coding)
	at := int(cut) % (len(body) + 1)
	write(t, r, body[:at], 1)
	write(t, r, body[at:], 3)
	if got := r.Done(whole); got != want {
		t.Fatalf("%+v in pieces, %+v at once", got, want)
	}
	return want
}

func sources(t testing.TB) []*usage.Source {
	return []*usage.Source{usage.OpenAI(), usage.Anthropic(), path(t, "a.b"), path(t, "a.1.b"), path(t, "usage.#(x>1)#.y|0"), path(t, "a.*.@reverse")}
}

// The figures of a JSON text are those that encoding/json reads from it.
func FuzzJSON(f *testing.F) {
	for _, a := range answers(f) {
		if a.mime != ofEvents {
			f.Add(a.body, uint16(7), true)
		}
	}
	f.Add(`{"usage":{"prompt_tokens":1},"Usage":{"prompt_tokens":2}}`, uint16(1), true)
	f.Add(`{"a":[{"b":1},{"b":"\ud800"}]}`, uint16(1), false)
	f.Add(strings.Repeat(`{"usage":[`, 300), uint16(1), false)
	f.Fuzz(func(t *testing.T, body string, cut uint16, whole bool) {
		var got usage.Result
		for i, source := range sources(t) {
			if r := checkPieces(t, source, ofJSON, "", body, cut, whole); i == 0 {
				got = r
			}
		}
		if !json.Valid([]byte(body)) || got.Missing != "" {
			return
		}
		input, output := reference(body)
		if input >= 0 && got.Input != input || output >= 0 && got.Output != output {
			t.Errorf("%+v, want %d, %d", got, input, output)
		}
	})
}

// reference reads the usual figures of a valid JSON text by encoding/json. It returns -1
// for a figure that is not unambiguous.
func reference(body string) (input, output int64) {
	var top map[string]json.RawMessage
	if strings.Contains(body, `\`) || strings.Count(body, "prompt_tokens") != 1 || strings.Count(body, "completion_tokens") != 1 ||
		strings.Contains(body, "put_tokens") || strings.Count(body, "usage") != 1 || json.Unmarshal([]byte(body), &top) != nil {
		return -1, -1
	}
	var usage map[string]json.RawMessage
	if json.Unmarshal(top["usage"], &usage) != nil {
		return -1, -1
	}
	figure := func(name string) int64 {
		var n uint32
		if json.Unmarshal(usage[name], &n) != nil || string(usage[name]) == "null" {
			return -1
		}
		return int64(n)
	}
	return figure("prompt_tokens"), figure("completion_tokens")
}

func FuzzSSE(f *testing.F) {
	for _, a := range answers(f) {
		if a.mime == ofEvents {
			f.Add(a.body, uint16(7), true)
		}
	}
	f.Add("data\ndata:\n\ndata: [DONE]\r\r\n", uint16(3), false)
	f.Fuzz(func(t *testing.T, body string, cut uint16, whole bool) {
		for _, source := range sources(t) {
			checkPieces(t, source, ofEvents, "", body, cut, whole)
		}
	})
}

// Compressed answers, broken or not, never panic.
func FuzzCoding(f *testing.F) {
	for _, coding := range []string{"gzip", "zstd"} {
		f.Add(encode(f, coding, chat), uint16(9), coding == "zstd")
		f.Add(encode(f, coding, chat)+encode(f, coding, responses), uint16(9), coding == "zstd")
	}
	f.Fuzz(func(t *testing.T, body string, cut uint16, isZstd bool) {
		coding := map[bool]string{true: "zstd", false: "gzip"}[isZstd]
		if len(body) < 1<<16 {
			checkPieces(t, usage.OpenAI(), ofJSON, coding, body, cut, true)
		}
	})
}

// An estimate is not below the number that encoding/json reads from a body, folding names
// as it does, unless it says so.
func FuzzReserve(f *testing.F) {
	f.Add(`{"max_tokens":5,"MAX_TOKENS":6}`)
	f.Add(`{"max\u005ftokens":"5","messages":[{"max_tokens":1}]}`)
	f.Add(`{"maxK_tokens":1e3,"n":3,"prompt":["a",["b"]]}`)
	f.Add(`{"max_tokens":5,"max_tokens":[{"prompt":["a"]}],"prompt":[{"a":1},"b",[]]}`)
	want := fields(f, "max_tokens", "options.num_predict")
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		start, err := usage.ReadStart(r, true)
		if err != nil {
			t.Fatal(err)
		}
		got := want.Estimate(r, start)
		if got.Output < 0 || got.Output > usage.MaxCount || got.Times < 1 || got.Sure && got.Output < 1 {
			t.Fatalf("%+v", got)
		}
		if again, err := io.ReadAll(r.Body); string(again) != body || err != nil {
			t.Fatalf("%q is read again, %v", again, err)
		}
		var backend struct {
			MaxTokens uint32 `json:"max_tokens"`
			N         uint16 `json:"n"`
			Options   struct {
				Predict uint32 `json:"num_predict"`
			} `json:"options"`
			Prompt []json.RawMessage `json:"prompt"`
		}
		if json.Unmarshal([]byte(body), &backend) != nil {
			return
		}
		times := int64(max(1, backend.N))
		if len(backend.Prompt) > 0 && bytes.IndexByte(backend.Prompt[0], '"') == 0 {
			texts := int64(0)
			for _, p := range backend.Prompt {
				if p[0] == '"' {
					texts++
				}
			}
			times *= texts
		}
		if n := int64(max(backend.MaxTokens, backend.Options.Predict)) * times; n > 0 && len(body) < usage.MaxBody && got.Output < n {
			t.Errorf("%+v; the back end reads %d", got, n)
		}
	})
}
