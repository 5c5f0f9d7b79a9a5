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
