package usage_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

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
func TestStartFails(t *testing.T) {
	fails := errors.New("the client is gone")
	body := &closer{Reader: io.MultiReader(strings.NewReader(`{"max_tokens":5,`), iotest.ErrReader(fails))}
	r := httptest.NewRequest("POST", "/", nil)
	r.Body = body
	if _, err := usage.ReadStart(r, true); !errors.Is(err, fails) {
		t.Errorf("%v, want %v", err, fails)
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

// How much of a body is awaited: all of a short one, the first 4 KiB of one that may be long, and 256 KiB if
// something is to be found in it. Of a frame of gRPC, the first piece is enough.
func TestStartIsBounded(t *testing.T) {
	for _, test := range []struct {
		name      string
		body      string
		announced bool
		all       bool
		want      int
	}{
		{"short", strings.Repeat("x", 100_000), true, false, 100_000},
		{"short, to be read", strings.Repeat("x", 100_000), true, true, 100_000},
		{"of unknown length", strings.Repeat("x", 100_000), false, false, 4 << 10},
		{"of unknown length, to be read", strings.Repeat("x", 100_000), false, true, 100_000},
		{"long", strings.Repeat("x", 300_000), true, false, 4 << 10},
		{"long, to be read", strings.Repeat("x", 300_000), true, true, usage.MaxBody},
		{"frames", strings.Repeat("\x00", 100), false, true, 1},
		{"empty", "", false, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := strings.NewReader(test.body)
			r := httptest.NewRequest("POST", "/", iotest.OneByteReader(body))
			if test.announced {
				r.ContentLength = int64(len(test.body))
			}
			if _, err := usage.ReadStart(r, test.all); err != nil {
				t.Fatal(err)
			}
			if got := len(test.body) - body.Len(); got != test.want {
				t.Errorf("%d bytes were read, want %d", got, test.want)
			}
			if b, err := io.ReadAll(r.Body); string(b) != test.body || err != nil {
				t.Errorf("then %d bytes are read: %v", len(b), err)
			}
		})
	}
}

// A second handler reads on where the first one stopped, and keeps nothing twice.
func TestStartGoesOn(t *testing.T) {
	text := strings.Repeat("x", 20_000)
	r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(text)))
	r.ContentLength = -1
	first, _ := usage.ReadStart(r, false)
	before := usage.BodyBytes()
	if second, err := usage.ReadStart(r, true); second != first || err != nil || usage.BodyBytes()-before > 64<<10 {
		t.Errorf("%v, %d bytes more", err, usage.BodyBytes()-before)
	}
	_, _ = r.Body.Read(make([]byte, 5))
	if third, err := usage.ReadStart(r, true); third == first || err != nil {
		t.Errorf("a body that was read in part is continued: %v", err)
	}
	if b, err := io.ReadAll(r.Body); len(b) != len(text)-5 || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Starts take 3 MiB together, and 2 MiB if they are long. Those that do not fit are not kept, and their bodies pass as they are. What was
// kept is dropped when it is read, closed, or the request ends.
func TestStartsAreBounded(t *testing.T) {
	before := usage.BodyBytes()
	text := strings.Repeat("x", 200_000)
	ctx, cancel := context.WithCancel(t.Context())
	var requests []*http.Request
	refused := 0
	for range 100 {
		r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(text))
		s, err := usage.ReadStart(r, true)
		if err != nil {
			t.Fatal(err)
		}
		if s.NoRoom {
			refused++
		}
		requests = append(requests, r)
	}
	if got := usage.BodyBytes(); got > usage.MaxBodies || got < usage.MaxBodies*6/10 || refused < 70 {
		t.Errorf("%d bytes are kept, want at most %d; %d were refused", got, usage.MaxBodies, refused)
	}
	short := httptest.NewRequest("POST", "/", strings.NewReader("short"))
	if s, _ := usage.ReadStart(short, true); s.NoRoom {
		t.Error("there is no room for a short body")
	}
	_ = short.Body.Close()
	for i, r := range requests {
		switch i % 3 {
		case 0:
			if b, err := io.ReadAll(r.Body); string(b) != text || err != nil {
				t.Errorf("%d bytes are read again, %v", len(b), err)
			}
		case 1:
			_ = r.Body.Close()
		}
	}
	cancel()
	for end := time.Now().Add(10 * time.Second); usage.BodyBytes() != before; time.Sleep(time.Millisecond) { // context.AfterFunc has goroutines
		if time.Now().After(end) {
			t.Fatalf("%d bytes are kept in the end, want %d", usage.BodyBytes(), before)
		}
	}
	if _, err := requests[2].Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("a body of a request that has ended: %v", err)
	}
}
