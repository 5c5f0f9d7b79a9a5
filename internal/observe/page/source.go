package page

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// metricsEvery is a little less than how often the page asks, so that no timer that is early
	// gets an old answer.
	metricsEvery = 1500 * time.Millisecond
	// statusEvery bounds the lines that Caddy logs of this page: one for each time.
	statusEvery = 10 * time.Second
	// patience is how long the page waits for Caddy.
	patience = 3 * time.Second
)

var errSilent = fmt.Errorf("Caddy has not answered for %s", patience) //nolint:staticcheck // a name

// result is an answer of Caddy.
type result struct {
	text []byte
	err  error
}

// source is something that Caddy is asked for, on demand and not too often, however many browsers ask
// for it. It waits for one answer at a time.
type source struct {
	every time.Duration
	ask   func() ([]byte, error)

	mu      sync.Mutex // guards what follows
	asked   time.Time
	hurried time.Time
	pending chan struct{} // closed when the answer is there; nil if none is awaited
	last    result
	at      time.Time // of last
}

func newSource(every time.Duration, ask func() ([]byte, error)) *source {
	return &source{every: every, ask: ask}
}

// get returns the newest answer, and when it came. It waits for one that is awaited until ctx ends. An answer
// that is old is better than none: it comes with the error.
func (s *source) get(ctx context.Context) (text []byte, at time.Time, err error) {
	if pending := s.begin(); pending != nil {
		select {
		case <-pending:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		return s.last.text, s.at, errSilent
	}
	return s.last.text, s.at, s.last.err
}

// begin asks if it is time. It returns what is closed when the answer is there, or nil if none is awaited.
func (s *source) begin() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil || !s.asked.IsZero() && time.Since(s.asked) < s.every {
		return s.pending
	}
	pending := make(chan struct{})
	s.pending, s.asked = pending, time.Now()
	go func() {
		text, err := s.ask()
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			s.last.text, s.at = text, time.Now()
		}
		s.last.err, s.pending = err, nil
		close(pending)
	}()
	return pending
}

// wait returns the result that comes, or an error if none does for long.
func wait(ctx context.Context, answer <-chan result) ([]byte, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case found := <-answer:
		return found.text, found.err
	case <-timer.C:
		return nil, errSilent
	case <-ctx.Done():
		return nil, errors.New("the browser is gone")
	}
}

// hurry makes the next get ask, though it may not be time yet. Of several calls within s.every, one counts.
func (s *source) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hurried.IsZero() || time.Since(s.hurried) >= s.every {
		s.hurried, s.asked = time.Now(), time.Time{}
	}
}
