package stores

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// encrypted holds the stores that connect with TLS, from Provision until the last module
// that uses them is gone.
var encrypted sync.Map // of window.Store

// Hint returns what an operator may have to change when a store is away for a cause that
// does not say so itself, or nothing. A server without TLS waits for the end of what it
// takes for a command, and never answers.
func Hint(store window.Store, cause error) string {
	_, ok := encrypted.Load(store)
	if ok && (errors.Is(cause, context.DeadlineExceeded) || errors.As(cause, new(tls.RecordHeaderError))) {
		return "if the server does not speak TLS at this port, write redis:// in place of rediss://, or take tls out"
	}
	return ""
}
