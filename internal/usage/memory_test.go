package usage_test

import (
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

// An answer of 100 MB takes no memory, in identity, gzip and zstd. Other shapes of 4 MB
// take no more. The figures are at the end.
func TestMemoryIsFlat(t *testing.T) {
	const end = `"usage":{"prompt_tokens":1,"completion_tokens":2}}`
	for _, test := range []struct{ name, mime, before, fill, after string }{
		{"text", ofJSON, `{"a":"`, strings.Repeat(`x\n `, 1<<14), `",` + end},
		{"name", ofJSON, `{"`, strings.Repeat(`usage`, 1<<14), `":0,` + end},
		{"numbers", ofJSON, `{"a":[`, strings.Repeat(`-0.0123,`, 1<<13), `1],` + end},
		{"number", ofJSON, `{"usage":{"prompt_tokens":`, strings.Repeat(`1`, 1<<16), `},` + end},
		{"space", ofJSON, `{`, strings.Repeat(" \n", 1<<15), end},
		{"members", ofJSON, `{`, strings.Repeat(`"prompt_tokens":7,`, 1<<12), end},
		{"nesting", ofJSON, `{"a":`, strings.Repeat(`[{"usage":`, 1<<13), ""},
		{"event", ofEvents, `data: {"a":"`, strings.Repeat(`x`, 1<<16), `",` + end + "\n\ndata: [DONE]\n\n"},
		{"events", ofEvents, "", strings.Repeat("data: {\"a\":1}\n\n", 1<<12), `data: {` + end + "\n\ndata: [DONE]\n\n"},
		{"comment", ofEvents, ":", strings.Repeat("data: ", 1<<13), "\ndata: {" + end + "\n\ndata: [DONE]\n\n"},
		{"field", ofEvents, "", strings.Repeat("data", 1<<14), "\ndata: {" + end + "\n\ndata: [DONE]\n\n"},
	} {
		for _, coding := range []string{"", "gzip", "zstd"} {
			t.Run(test.name+" "+coding, func(t *testing.T) {
				r := usage.OpenAI().NewReader(test.mime, coding)
				var w io.Writer = r
				closes := func() {}
				if coding != "" {
					e := encoders[coding](r)
					w, closes = e, func() { e.Close() }
				}
				io.WriteString(w, test.before)
				fill := []byte(test.fill)
				write := func(n int) {
					for ; n > 0; n -= len(fill) {
						w.Write(fill)
					}
				}
				size := 4 << 20
				if test.name == "text" {
					size = 100 << 20
				}
				write(4 << 20) // buffers of the test's encoder and of the decoder have their size
				before := heap()
				total := allocated()
				write(size)
				grown, churn := int64(heap())-int64(before), allocated()-total
				io.WriteString(w, test.after)
				closes()
				got := r.Done(true)
				if test.after != "" && got != (usage.Result{Input: 1, Output: 2}) {
					t.Errorf("%+v", got)
				}
				if grown > 512<<10 {
					t.Errorf("%d bytes more are in use", grown)
				}
				if coding == "" && churn > 256<<10 {
					t.Errorf("%d bytes were allocated", churn)
				}
			})
		}
	}
}

// heap returns how many bytes are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what was in a sync.Pool
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// allocated returns how many bytes have been allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Scanning allocates for the figures only: not for the events of a stream without them.
func TestAllocations(t *testing.T) {
	event := []byte("event: x\r\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a \\\"quoted\\\" word\"},\"usage\":null}\r\n\r\n")
	for _, source := range []*usage.Source{usage.OpenAI(), usage.Anthropic()} {
		r := source.NewReader(ofEvents, "")
		r.Write(event)
		if n := testing.AllocsPerRun(100, func() { r.Write(event) }); n != 0 {
			t.Errorf("%v allocations an event", n)
		}
	}
}

// A small answer that decodes to more than the limit is given up.
func TestBomb(t *testing.T) {
	for coding := range encoders {
		for _, test := range []struct {
			limit int64
			want  usage.Reason
		}{{1 << 20, usage.TooLong}, {2 << 20, ""}} {
			bomb := encode(t, coding, `{"usage":{"prompt_tokens":1},"a":[`+strings.Repeat(" ", 3<<19)+`]}`)
			r := usage.OpenAI().NewReader(ofJSON, coding)
			r.SetLimit(test.limit)
			write(t, r, bomb, 32<<10)
			if got := r.Done(true); got.Missing != test.want {
				t.Errorf("%s: %+v from %d bytes", coding, got, len(bomb))
			}
		}
	}
}

func BenchmarkReader(b *testing.B) {
	text := `{"a":"` + strings.Repeat(`some words of an answer\n`, 40_000) + `","usage":{"prompt_tokens":1}}`
	numbers := `{"a":[` + strings.Repeat(`-0.0123456,`, 90_000) + `1],"usage":{"prompt_tokens":1}}`
	stream := strings.Repeat(`data: {"id":"1","choices":[{"index":0,"delta":{"content":"Hel"}}],"usage":null}`+"\n\n", 12_000) + "data: [DONE]\n\n"
	for _, bench := range []struct{ name, mime, body string }{{"text", ofJSON, text}, {"numbers", ofJSON, numbers}, {"stream", ofEvents, stream}, {"small", ofJSON, chat}} {
		for _, coding := range []string{"", "gzip", "zstd"} {
			b.Run(bench.name+" "+coding, func(b *testing.B) {
				body := bench.body
				if coding != "" {
					var s strings.Builder
					w := encoders[coding](&s)
					io.WriteString(w, body)
					w.Close()
					body = s.String()
				}
				source := usage.OpenAI()
				b.SetBytes(int64(len(bench.body)))
				b.ReportAllocs()
				for b.Loop() {
					r := source.NewReader(bench.mime, coding)
					for i := 0; i < len(body); i += 32 << 10 {
						r.Write([]byte(body[i:min(i+32<<10, len(body))]))
					}
					r.Done(true)
				}
			})
		}
	}
}
