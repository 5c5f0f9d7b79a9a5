package window

import (
	"fmt"
	"time"
)

// Stream is the exact sliding-window log, and one that can be read: in Redis it
// is a stream with one entry per request, whatever its cost, that holds the
// fields of the charge. Memory there grows with the requests that are kept.
//
// The promise is that of Zset, and so are the decisions. The history in this process
// has nothing to read: it keeps neither fields nor what has left the window.
type Stream struct {
	ofRecords

	// How long entries stay readable, in whole milliseconds, if that is longer
	// than the longest window. What has left the window counts no more, however
	// long it is kept.
	Keep time.Duration
}

// check reports what is wrong with the options, in words for an operator.
func (a Stream) check() error {
	if a.Keep < 0 || a.Keep%time.Millisecond != 0 {
		return fmt.Errorf("keep %s is not a whole number of milliseconds of 0 or more", a.Keep)
	}
	return nil
}

// Name implements Algorithm.
func (Stream) Name() string { return "stream" }

// options implements Algorithm: keep in ms.
func (a Stream) options() []int64 { return []int64{a.Keep.Milliseconds()} }
