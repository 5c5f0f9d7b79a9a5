package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// MaxBody is how much of a request's body an estimate reads.
const MaxBody = 256 << 10

// Fields are members of a request's body that say how much an answer may cost at most, as
// max_tokens does. It is immutable and may be shared.
type Fields struct {
	root   *node
	maxKey int
}

// NewFields returns Fields of names, or of paths of plain names with dots, such as
// generationConfig.maxOutputTokens.
func NewFields(paths ...string) (*Fields, error) {
	if len(paths) == 0 {
		return nil, errors.New("no field to estimate from; name one, such as max_tokens")
	}
	root := new(node)
	for _, path := range paths {
		names, rest := cutNames(path)
		if len(names) == 0 || rest != "" {
			return nil, fmt.Errorf("field %q must be a name, or names with dots between them, such as options.num_predict", path)
		}
		root.add(names, slotPath)
	}
	return &Fields{root: root, maxKey: 6 * root.longest()}, nil
}

// Estimate returns the largest number in the fields of r's body, at least 1 and at most
// most. It reports false if there is no such number in the first MaxBody bytes, or if the
// body is not readable as JSON: it has a content coding, or r upgrades the connection.
// It sets r.Body so that the body is read again from its beginning.
//
// It returns when the body ends, when MaxBody bytes have come, or when reading fails; so a
// client decides how long it takes, within the timeouts of the server. An error of reading
// is returned to those who read the body later.
//
// A client must not reach a smaller estimate by a spelling that the back end reads in
// another way. Of a name that occurs twice, the largest number counts. Names match in any
// case, and with escapes. A text with a number in it is a number. The content type does
// not matter.
func (f *Fields) Estimate(r *http.Request, most int64) (units int64, found bool) {
	units, _, found = f.Read(r)
	return max(1, min(units, most)), found
}

// Read returns the largest number in the fields of r's body as it is, and how many bytes of
// the body were read: MaxBody at most. Otherwise it does what Estimate does.
func (f *Fields) Read(r *http.Request) (largest, size int64, found bool) {
	if r.Body == nil || r.Body == http.NoBody || isStream(r) || coding(r.Header.Get("Content-Encoding")) != "" {
		return 0, 0, false
	}
	start, err := readStart(r)
	r.Body = &replayed{start: start, err: err, body: r.Body}
	largest, found = f.largest(start)
	return largest, int64(len(start)), found
}

// isStream reports whether the body of r may go on while the answer does.
func isStream(r *http.Request) bool {
	return r.Method == http.MethodConnect || r.Header.Get("Upgrade") != "" ||
		strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// readStart reads at most MaxBody bytes of the body of r. The error is nil if more may
// come.
func readStart(r *http.Request) ([]byte, error) {
	var b bytes.Buffer
	if r.ContentLength > 0 { // it is -1 if it is not known
		b.Grow(int(min(r.ContentLength, 8<<10)) + bytes.MinRead) // a client may announce more than it sends
	}
	n, err := b.ReadFrom(io.LimitReader(r.Body, MaxBody))
	if err == nil && n < MaxBody {
		err = io.EOF
	}
	return b.Bytes(), err
}

// largest returns the largest number in the fields of a body.
func (f *Fields) largest(body []byte) (int64, bool) {
	l := new(largest)
	s := scanner{root: f.root, fold: true, maxKey: f.maxKey, sink: l}
	s.write(body)
	return l.n, l.ok
}

// largest is the sink that keeps the largest number.
type largest struct {
	n  int64
	ok bool
}

func (l *largest) found(_ int, value []byte) {
	if len(value) > 0 && value[0] == '"' {
		var text string
		if json.Unmarshal(value, &text) != nil {
			return
		}
		value = []byte(strings.TrimSpace(text))
	}
	if n, ok := count(value); ok {
		l.n, l.ok = max(l.n, n), true
	}
}

// replayed is a body whose start has been read. As of any body of a request, Close may be
// called during Read.
type replayed struct {
	start  []byte
	err    error // of reading after start; nil: read on
	body   io.ReadCloser
	closed atomic.Bool
}

func (b *replayed) Read(p []byte) (int, error) {
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case len(b.start) > 0:
		n := copy(p, b.start)
		b.start = b.start[n:]
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	b.start = nil
	return b.body.Read(p)
}

func (b *replayed) Close() error {
	b.closed.Store(true)
	return b.body.Close()
}
