package usage

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxBody is how much of a request's body is read before a decision.
	MaxBody = 256 << 10
	// MaxBodies is what the starts of all bodies of the process take together. What is beyond the first 4 KiB of
	// each has two thirds of it: long bodies leave room for short ones, such as those of log-ins.
	MaxBodies = 3 << 20
	// firstBytes is how much is awaited of a body that may be long and is not estimated from.
	firstBytes = 4 << 10
	// maxPiece is the largest piece of memory that is taken at once for a body.
	maxPiece = 32 << 10
)

// BodyTime is the longest that the body of a request is awaited before a decision. Tests change it.
var BodyTime = 30 * time.Second

// bodies is the memory of all starts, in bytes.
var bodies atomic.Int64

// Start is the start of a request's body. It is the body of the request from then on, and is read from the
// beginning.
//
// A piece is dropped when it has been read again, and the rest when the context of the request ends. As
// of any body of a request, Close may be called during Read.
type Start struct {
	// NoRoom reports whether reading stopped because the starts of all bodies have MaxBodies.
	NoRoom bool

	body   io.ReadCloser
	size   int64
	err    error // of reading after the start; nil: read on
	framed bool

	mu     sync.Mutex // guards what follows; not held while body is read
	pieces [][]byte
	at     int  // how much of the first piece has been read again
	begun  bool // something has
	closed bool
	forget func() bool // undoes context.AfterFunc
}

// HasBody reports whether r has a body that may be read before r is answered. A client and a back end that
// switch protocols, by CONNECT or by a GET with an upgrade, may both wait for bytes of each other.
func HasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.Method != http.MethodConnect &&
		(r.Method != http.MethodGet || !upgrades(r.Header))
}

// upgrades reports whether a request asks to switch protocols: without the option of Connection, the
// field Upgrade does nothing.
func upgrades(h http.Header) bool {
	if h.Get("Upgrade") == "" {
		return false
	}
	for _, field := range h["Connection"] {
		for option := range strings.SplitSeq(field, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "upgrade") {
				return true
			}
		}
	}
	return false
}

// ReadStart reads the start of the body of r, for which HasBody holds, and replaces r.Body. If that is a
// Start already, ReadStart continues it. It returns when
//
//   - the body has ended, or reading it failed: the error is returned, and once more to those who read the body;
//   - MaxBody bytes have come, or, unless all, 4 KiB of a body that is longer than MaxBody or may be;
//   - the first byte is 0 or 1: that is a frame of gRPC, whose client may wait for an answer;
//   - the memory of all starts is used up.
//
// A client thus decides how long it takes, within the read deadline of the request.
func ReadStart(r *http.Request, all bool) (*Start, error) {
	most := int64(MaxBody)
	if !all && (r.ContentLength < 0 || r.ContentLength > MaxBody) {
		most = firstBytes
	}
	s, ok := r.Body.(*Start)
	if !ok || s.isBegun() {
		s = &Start{body: r.Body}
		r.Body = s
	}
	if s.err == nil {
		s.read(r, most)
	}
	if s.err != nil && s.err != io.EOF { //nolint:errorlint // io.Reader returns it as it is
		return s, s.err
	}
	return s, nil
}

func (s *Start) isBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun || s.closed
}

// read reads on until the start has most bytes.
func (s *Start) read(r *http.Request, most int64) {
	s.NoRoom = false
	for empty := 0; s.err == nil && !s.framed && s.size < most; {
		room := s.room(r.ContentLength, most)
		if room == nil {
			s.NoRoom = true
			break
		}
		n, err := s.body.Read(room)
		s.add(n)
		s.framed = s.size == int64(n) && n > 0 && room[0] <= 1
		if s.err = err; n > 0 {
			empty = 0
		} else if empty++; err == nil && empty == 100 {
			s.err = io.ErrNoProgress
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forget == nil && len(s.pieces) > 0 {
		s.forget = context.AfterFunc(r.Context(), s.drop)
	}
}

// room returns where to read to, or nil if there is no memory.
func (s *Start) room(announced, most int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.pieces); n > 0 {
		if last := s.pieces[n-1]; len(last) < cap(last) {
			return last[len(last):cap(last)]
		}
	}
	size := min(max(s.size, 512), maxPiece)
	if len(s.pieces) == 0 && announced >= 0 {
		size = min(announced+1, firstBytes) // a client may announce more than it sends; and 1 for the end
	}
	size = min(size, most-s.size)
	limit := int64(MaxBodies)
	if s.size >= firstBytes {
		limit = MaxBodies * 2 / 3
	}
	if s.closed || bodies.Add(size) > limit {
		bodies.Add(-size)
		return nil
	}
	s.pieces = append(s.pieces, make([]byte, 0, size))
	return s.pieces[len(s.pieces)-1][:size]
}

// add adds n bytes that were read to room.
func (s *Start) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size += int64(n)
	if last := len(s.pieces) - 1; last >= 0 { // or the context has ended
		s.pieces[last] = s.pieces[last][:len(s.pieces[last])+n]
	}
}

// whole reports whether the body ends with the start.
func (s *Start) whole() bool { return s.err == io.EOF } //nolint:errorlint // as in ReadStart

// Read implements io.Reader.
func (s *Start) Read(p []byte) (int, error) {
	if n, err := s.again(p); n > 0 || err != nil || len(p) == 0 {
		return n, err
	}
	if s.err != nil {
		return 0, s.err
	}
	return s.body.Read(p)
}

// again reads what was read before.
func (s *Start) again(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	s.begun = s.begun || len(p) > 0
	for len(s.pieces) > 0 && n < len(p) {
		copied := copy(p[n:], s.pieces[0][s.at:])
		n += copied
		if s.at += copied; s.at == len(s.pieces[0]) {
			s.free(1)
		}
	}
	return n, nil
}

// free drops the first pieces. s.mu must be held.
func (s *Start) free(pieces int) {
	for _, piece := range s.pieces[:pieces] {
		bodies.Add(-int64(cap(piece)))
	}
	clear(s.pieces[:pieces])
	s.pieces, s.at = s.pieces[pieces:], 0
	if len(s.pieces) == 0 && s.forget != nil {
		s.forget()
	}
}

// drop drops what has not been read again.
func (s *Start) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.free(len(s.pieces))
}

// Close implements io.Closer.
func (s *Start) Close() error {
	s.drop()
	return s.body.Close()
}
