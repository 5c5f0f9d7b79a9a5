package engine

import (
	"errors"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// PartError is in the chain of an error of a Parted store that knows which of its parts failed.
type PartError struct {
	Parts []string
	Err   error
}

// Error implements error.
func (e *PartError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the store.
func (e *PartError) Unwrap() error { return e.Err }

// NotSent returns err as that of a request which has not been sent, because another
// failed that comes before it: whatever may have become of that, this one was not
// charged. Nil stays nil.
func NotSent(err error) error {
	if err == nil {
		return nil
	}
	return notSentError{err}
}

type notSentError struct{ error }

// Is reports false for ErrUnknown, which is true of the other request only. There is no
// Unwrap, so that errors.Is cannot reach ErrUnknown.
func (e notSentError) Is(target error) bool {
	return target != window.ErrUnknown && errors.Is(e.error, target)
}
