package handlertest

import (
	"net/http"
	"testing"
)

// lines are the status lines of an answer, each with the fields at that time.
type lines struct {
	header   http.Header
	statuses []int
	fields   []http.Header
}

func (l *lines) Header() http.Header         { return l.header }
func (l *lines) Write(p []byte) (int, error) { return len(p), nil }
func (l *lines) WriteHeader(status int) {
	l.statuses, l.fields = append(l.statuses, status), append(l.fields, l.header.Clone())
}

// A field that strip removes is in no status line that the client sees, and an interim one settles nothing.
func TestStripOfInterim(t *testing.T) {
	h, _ := New(t, OfZone(t, `"limits":[{"max":100,"window":"1h"}],"cost":10,"settle":{"header":"X-Units","strip":true}`, ""))
	w := &lines{header: make(http.Header)}
	err := AnswerWith(h, w, Get(), func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Units", "30")
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.statuses) != 2 || w.statuses[0] != http.StatusEarlyHints || w.statuses[1] != http.StatusOK {
		t.Fatalf("got the status lines %v, want 103 and 200", w.statuses)
	}
	for i, fields := range w.fields {
		if fields["X-Units"] != nil || fields["Link"] == nil {
			t.Errorf("status %d has %v, want Link and no X-Units", w.statuses[i], fields)
		}
	}
	again := &lines{header: make(http.Header)}
	if err := AnswerWith(h, again, Get(), func(http.ResponseWriter, *http.Request) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := again.header.Get("RateLimit"); got != `"`+ZoneName(t)+`";r=60;t=3600` {
		t.Errorf("after a cost of 30 and 10 reserved: got %s, want 60 remaining", got)
	}
}
