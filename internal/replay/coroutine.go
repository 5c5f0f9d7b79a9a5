package replay

import (
	"iter"
	"net/http"
)

// coroutine serves requests, one after the other, each up to its end or to the time when its answer is held. It keeps
// its stack, which a new one would have to grow for each request.
type coroutine struct {
	step    *step
	request *http.Request
	// resume goes on with the request. It reports whether the answer is held.
	resume func() (held, ok bool)
	stop   func()
}

func newCoroutine() *coroutine {
	c := new(coroutine)
	c.resume, c.stop = iter.Pull(func(yield func(held bool) bool) {
		for more := true; more; more = yield(false) {
			c.step.hold = func() { yield(true) }
			c.step.server.ServeHTTP(&writer{make(http.Header)}, c.request)
		}
	})
	return c
}
