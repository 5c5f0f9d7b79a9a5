package batch

import (
	"context"
	"time"
)

// deadline is a context that ends at a time. Unlike those of package context it can
// be used again, so that a decision needs no new one.
type deadline struct {
	context.Context // context.Background
	at              time.Time
	done            chan struct{} // closed when the time has come
	timer           *time.Timer   // closes done
}

// startDeadline returns a context that ends after a time: d, unless that is nil.
func startDeadline(d *deadline, after time.Duration) *deadline {
	at := time.Now().Add(after)
	if d != nil {
		d.at = at
		d.timer.Reset(after)
		return d
	}
	d = &deadline{Context: context.Background(), at: at, done: make(chan struct{})}
	d.timer = time.AfterFunc(after, func() { close(d.done) })
	return d
}

// stop returns d for startDeadline, or nil if its time has come.
func (d *deadline) stop() *deadline {
	if d.timer.Stop() {
		return d
	}
	return nil
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
