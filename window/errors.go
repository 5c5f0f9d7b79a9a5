package window

import "errors"

var (
	// ErrUnavailable is in the chain of every error that says that a store could
	// not decide: it is an outage, and no verdict on the request.
	ErrUnavailable = errors.New("store unavailable")

	// ErrBusy is in the chain, after ErrUnavailable, when the queue of a store is full.
	ErrBusy = errors.New("too many requests wait for it")

	// ErrUnknown is in the chain, after ErrUnavailable, when the request may have been
	// charged all the same: it was sent, and what became of it is not known.
	ErrUnknown = errors.New("the request may have been charged")

	// ErrRefused is in the chain, after ErrUnavailable, when the store's server
	// answers that it will not decide: it is out of memory, a replica, ...
	ErrRefused = errors.New("refused")

	// ErrForeign is in the chain, after ErrUnavailable, when the key of a counter holds
	// other data. It says nothing about other counters.
	ErrForeign = errors.New("not a counter")

	// ErrInvalid is in the chain of every error that says that a charge makes no
	// sense. It is the caller's mistake, not an outage.
	ErrInvalid = errors.New("invalid charge")
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
	return target != ErrUnknown && errors.Is(e.error, target)
}
