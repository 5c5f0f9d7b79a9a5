package window

import (
	"fmt"
	"time"
)

// Stream is the exact sliding-window log, and one that can be read: in Redis it
// is a stream with one entry per request, whatever its cost, that holds the
// fields of the charge. Memory there grows with the requests that are kept.
//
// The promise is that of Zset, and so are the decisions. The state in this process
// has nothing to read: it keeps neither fields nor what has left the window.
type Stream struct {
	// How long entries stay readable, in whole milliseconds, if that is longer
	// than the longest window. What has left the window counts no more, however
	// long it is kept.
	Keep time.Duration
}

// Check reports what is wrong with the options, in words for an operator.
func (a Stream) Check() error {
	if a.Keep < 0 || a.Keep%time.Millisecond != 0 {
		return fmt.Errorf("keep %s is not a whole number of milliseconds of 0 or more", a.Keep)
	}
	return nil
}

// Name implements Algorithm.
func (Stream) Name() string { return "stream" }

// Options implements Algorithm: keep in ms.
func (a Stream) Options() []int64 { return []int64{a.Keep.Milliseconds()} }

// NewState implements Algorithm.
func (Stream) NewState() State { return new(streamState) }

// streamState is the log of zset, except that time in it never goes back: units
// in the future are pulled back before others are added.
type streamState struct{ zsetState }

func (s *streamState) Spend(now int64, c *Charge, ds []Decision) {
	s.repair(now)
	s.zsetState.Spend(now, c, ds)
}

func (s *streamState) Settle(now int64, c *Charge, at, delta int64) {
	if delta > 0 {
		s.repair(now)
	}
	s.zsetState.Settle(now, c, at, delta)
}

func (s *streamState) repair(now int64) {
	if n := len(s.entries); n > s.head && s.entries[n-1].at > now {
		s.pullBack(now)
	}
}
