// Package usage reads what an answer of an API really cost, while the answer passes.
//
// A Source names what to look for: the token counts of a known API, or a number at a
// JSON path. Source.NewReader returns a Reader for one answer. The Reader gets a copy of
// every byte that the client gets, and Reader.Done returns the figures:
//
//	r := usage.OpenAI().NewReader(h.Get("Content-Type"), h.Get("Content-Encoding"))
//	defer r.Done(false) // idempotent; ends the goroutine of a compressed answer
//	...
//	r.Write(p) // after p went to the client
//	...
//	result := r.Done(true)
//	if result.Missing == "" {
//		units = weights.Units(result)
//	}
//
// # Memory
//
// Nothing of an answer is kept. A push scanner follows the nesting of a JSON text with a
// counter and keeps only the names and the values that it looks for: at most 64 KiB for a
// path with an array in it, else less than 1 KiB. An answer of any length takes the same
// memory, and the figures may stand anywhere in the top-level object. The scanner is
// lenient: it reads past what is not JSON.
//
// # Concurrency
//
// A Reader of an answer without a content coding has no goroutine: Write scans and
// returns. For gzip and zstd, the first Write starts one goroutine, which decodes and
// scans. Write hands its bytes over through an io.Pipe, so it copies up to 32 KiB and
// returns; it waits only while the decoder is behind by more than that. Done closes the
// pipe and waits for the goroutine. A Reader whose Done is never called leaks it.
package usage
