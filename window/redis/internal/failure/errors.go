package failure

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// OwnError is an error in the words of the store.
type OwnError string

func (e OwnError) Error() string { return string(e) }

// RefusalError is the error that a server answered with.
type RefusalError string

func (r RefusalError) Error() string { return string(r) }

// RedisError implements goredis.Error.
func (RefusalError) RedisError() {}

// UnknownError is an error after which the server may have charged the request. It says so
// to errors.Is only, for most errors are of this kind.
type UnknownError struct{ error }

// Unknown returns err as an UnknownError.
func Unknown(err error) UnknownError { return UnknownError{err} }

func (u UnknownError) Unwrap() error { return u.error }

// Is reports whether target is window.ErrUnknown.
func (UnknownError) Is(target error) bool { return target == window.ErrUnknown }

// UnwrittenError is the error of a call that the client did not write.
type UnwrittenError struct{ error }

// Unwritten returns err as an UnwrittenError.
func Unwritten(err error) UnwrittenError { return UnwrittenError{err} }

func (u UnwrittenError) Unwrap() error { return u.error }

// UnsharedError is the error of a call for which a connection could not be made while others are open.
// It is ErrBusy to errors.Is, too: the server answers others.
type UnsharedError struct{ error }

// Unshared returns err as an UnsharedError.
func Unshared(err error) UnsharedError { return UnsharedError{err} }

func (u UnsharedError) Unwrap() error { return u.error }

// Is reports whether target is window.ErrBusy.
func (UnsharedError) Is(target error) bool { return target == window.ErrBusy }

// What the script says of a request that it did not decide on.
var (
	// ErrUndone is the error of a request that was not charged, and may be asked again.
	ErrUndone = OwnError("the script failed on this request")
	// ErrUncertain is the error of a request that may have been charged.
	ErrUncertain = OwnError("the script failed on this request, after it may have charged it")
	// ErrForbidden names NOPERM, which servers say themselves.
	ErrForbidden = fmt.Errorf("NOPERM in a script: %w", ErrUncertain)
)

// ErrNoThrottle takes the place of the server's own words, which hold the key.
var ErrNoThrottle = OwnError("the server has no command CL.THROTTLE, or does not let this user call it: load redis-cell, or take out `native on`")

// ErrNoHostname is the error of a Cluster whose nodes do not tell where they are.
var ErrNoHostname = OwnError("the Cluster prefers host names, and a node announces none: set cluster-announce-hostname on each node, or cluster-preferred-endpoint-type ip")

// ErrReply is the error of a connection that a server sent too much on, or what is no reply.
var ErrReply = OwnError("the reply is malformed or too long")

// ErrNoConnection is the error of a call that had no connection in time to a far server that
// answers. It is ErrBusy: the breaker must not open while the server answers.
var ErrNoConnection = fmt.Errorf("%w: a connection is still being made: %w", window.ErrBusy, context.DeadlineExceeded)

// ErrShared is the error of a call that had no connection in time, because no more of them can be made
// and others use those that are open. It is ErrBusy: the server answers others.
var ErrShared = fmt.Errorf("%w: no more connections to it can be made, and others use those that are open", window.ErrBusy)

// ErrLater is the error of a call that has not been made yet.
var ErrLater = errors.New("not asked yet")

// errStrange takes the place of errors that may hold parts of a reply.
const errStrange = OwnError("the server sent what does not answer the call")
