package usage

import (
	"errors"
	"io"
	"strings"
	"sync"
)

// Reason says why a cost is not known.
type Reason string

const (
	NoUsage Reason = "no_usage" // the answer is whole and has no figures, or is neither JSON nor Server-Sent Events
	Aborted Reason = "aborted"  // the answer ended before it was whole
	Encoded Reason = "encoded"  // the content coding cannot be read, or is broken
	TooLong Reason = "too_long" // the decoded answer, or the value of a path, is too long
)

// Result is what an answer cost.
type Result struct {
	Input  int64 // tokens that the model read, or the number of a path
	Cached int64 // those of Input that it read from a cache
	Output int64 // tokens that the model wrote

	// Missing is empty if the figures are final. Else they are what was seen until then:
	// a client that hangs up early sees less than what the answer cost.
	Missing Reason
}

// Reader reads the figures of one answer. Its methods may be called concurrently.
type Reader struct {
	mu     sync.Mutex
	source *Source
	coding string
	limit  int64  // bytes that are read, decoded
	off    Reason // why nothing is read

	// The goroutine of a compressed answer owns these until ended is closed.
	scan    scanner
	events  *events     // nil: not a stream of events
	text    textFigures // of the JSON text that is being read
	figures figures     // of those before it
	number  int64       // of a path
	seen    bool        // a figure was found
	kind    kind        // of the event that is being read
	last    bool        // a stream has had its last event
	totals  bool        // a stream has had its totals
	tooLong bool
	err     error // why decoding stopped

	pipe  *io.PipeWriter
	ended chan struct{}

	done   bool
	result Result
}

// kind is what the type of an event says.
type kind uint8

const (
	ordinary kind = iota
	total         // message_delta: the event has totals
	final         // message_stop and others: the event is the last one
)

// NewReader returns a Reader for an answer with these fields. It allocates a little, and
// starts nothing.
func (s *Source) NewReader(contentType, contentEncoding string) *Reader {
	r := &Reader{source: s, coding: coding(contentEncoding), limit: maxDecoded}
	r.scan = scanner{root: s.root, maxKey: s.maxKey, sink: r, ended: r.endText}
	mime, _, _ := strings.Cut(contentType, ";")
	mime = strings.ToLower(strings.TrimSpace(mime))
	switch {
	case r.coding != "" && decoders[r.coding] == nil:
		r.off = Encoded
	case mime == "text/event-stream":
		r.events = &events{write: r.scan.write, event: r.endEvent}
	case mime != "" && !strings.Contains(mime, "json"):
		r.off = NoUsage
	}
	return r
}

// Write reads the next piece of the answer. It never fails and does not retain p. After
// Done it does nothing.
func (r *Reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.done || r.off != "" || len(p) == 0:
	case r.coding == "":
		r.read(p)
	default:
		if r.pipe == nil {
			r.start()
		}
		_, _ = r.pipe.Write(p) // fails after the decoder has stopped, which Done reports
	}
	return len(p), nil
}

// start starts the goroutine that decodes what is written to r.pipe. It ends when the pipe
// is closed or the coding is broken.
func (r *Reader) start() {
	from, to := io.Pipe()
	r.pipe, r.ended = to, make(chan struct{})
	go func() {
		defer close(r.ended)
		r.err = errors.New("the decoder panicked")
		defer from.Close()
		defer func() { _ = recover() }()
		r.err = decode(from, r.coding, r.limit, r.read)
	}()
}

// read reads the next piece of the decoded answer.
func (r *Reader) read(p []byte) {
	if r.events != nil {
		r.events.feed(p)
		return
	}
	r.scan.write(p)
}

// Done returns what the answer cost, and ends what r has started. whole says that the
// answer ended as its sender meant it to end: the handler returned without an error and
// the client is still there. Later calls return the result of the first.
func (r *Reader) Done(whole bool) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return r.result
	}
	r.done = true
	if r.pipe != nil {
		_ = r.pipe.Close() // is always nil
		<-r.ended
	}
	r.result = r.sum()
	r.result.Missing = r.missing(whole)
	r.scan, r.events = scanner{}, nil
	return r.result
}

// found implements sink.
func (r *Reader) found(slot int, value []byte) {
	var n int64
	var ok bool
	switch slot {
	case slotType:
		r.kind = kindOf(value)
	case slotPath:
		r.tooLong = value == nil
		if n, ok = r.source.read(value); ok {
			r.number = n
		}
	default:
		if n, ok = count(value); ok && slot < slotInner {
			r.text.outer.set(slot, n)
		} else if ok {
			r.text.inner.set(slot-slotInner, n)
		}
	}
	r.seen = r.seen || ok
}

// endText is called at the end of a JSON text.
func (r *Reader) endText() {
	r.figures.add(&r.text, r.events != nil, r.source.anthropic)
	r.text = textFigures{}
}

// cutText is endText for a text that may have ended too early. Its total counts for nothing, as the parts of it
// may have been to come.
func (r *Reader) cutText() {
	r.text.outer.has[slotTotal], r.text.inner.has[slotTotal] = false, false
	r.endText()
}

// kindOf returns the kind of an event from its type, with quotes.
func kindOf(value []byte) kind {
	switch string(value) {
	case `"message_delta"`:
		return total
	case `"message_stop"`, `"response.completed"`, `"response.incomplete"`, `"response.failed"`:
		return final
	}
	return ordinary
}

// endEvent is called at the end of an event.
func (r *Reader) endEvent() {
	r.last = r.last || r.kind == final || r.events.done()
	r.totals = r.totals || r.kind == total
	r.kind = ordinary
	r.cutText()
	r.scan.reset()
}

// sum returns the figures so far.
func (r *Reader) sum() Result {
	r.cutText()
	result := r.figures.result(r.source.anthropic)
	result.Input = min(result.Input+r.number, MaxCount)
	return result
}

// missing returns why the figures are not final.
func (r *Reader) missing(whole bool) Reason {
	cut := r.scan.depth > 0 || r.scan.quoted
	if r.events != nil && r.scan.complete() {
		r.endEvent() // it lacks the empty line
	}
	ended := r.last
	switch {
	case ended:
	case r.events == nil:
		ended = r.scan.complete()
	case r.source.anthropic:
		ended = whole && !cut && r.totals
	default:
		ended = whole && !cut
	}
	switch {
	case r.off != "":
		return r.off
	case r.seen && ended:
		return ""
	case r.tooLong || errors.Is(r.err, errTooLong):
		return TooLong
	case r.err != nil && !errors.Is(r.err, io.ErrUnexpectedEOF):
		return Encoded
	case !r.seen && (ended || whole && !cut):
		return NoUsage
	}
	return Aborted
}
