// Package failure says what went wrong when a server was asked, in words that do not come from the
// server, and whether the server may have charged the request.
package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// refusals are the words with which a server begins the error of a call that has changed
// nothing: the server did not run the script, or refused the script's first write.
var refusals = []string{
	"ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH",
	"NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS",
	"WRONGTYPE",                             // the script reads all of a request's counters before it writes one
	"unknown command", "unknown subcommand", // EVALSHA or SCRIPT was renamed, or a proxy does not pass it on
	"Protocol error:", // the call is longer than the server takes
}

// notPermitted reports whether a server refused the whole call because the user lacks a
// permission. A script that may not run one of its commands may have run others before:
// the server names the script then.
func notPermitted(err error) bool {
	return goredis.HasErrorPrefix(err, "NOPERM ") && !strings.Contains(err.Error(), "script: ") && !strings.Contains(err.Error(), "user_script")
}

// noSentinel is how go-redis begins to say that no Sentinel named a master.
const noSentinel = "redis: all sentinels"

// Uncharged reports whether a call that ended with an error cannot have charged
// anything: it was not sent, or the server said that it did not run it. After a
// timeout or a lost connection, it may have.
func Uncharged(err error) bool {
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" || errors.As(err, new(UnwrittenError)) {
		return true
	}
	if notPermitted(err) {
		return true
	}
	for _, refusal := range refusals {
		if goredis.HasErrorPrefix(err, refusal+" ") {
			return true
		}
	}
	if err != nil && strings.HasPrefix(err.Error(), noSentinel) {
		return true
	}
	return errors.Is(err, goredis.ErrClosed) || errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, ErrNoThrottle)
}

// Words are what the errors of a store say of it.
type Words struct {
	Store         string // what it is called
	Timeout       time.Duration
	Cluster       bool
	Permissions   string // all that the user needs
	SentinelUser  string // all that the user at the Sentinels needs
	PartOfCluster func() // is called when a node of a Cluster answers a store that was not configured for one
}

// Fail says that the store could not decide, and why, and whether the server may have
// charged what it was asked.
func (w *Words) Fail(ctx context.Context, err error) error {
	if err == nil || Uncharged(err) {
		return w.FailUncharged(ctx, err)
	}
	return UnknownError{w.FailUncharged(ctx, err)}
}

// FailUncharged is Fail for a request that was not sent. What was asked, and the password, may
// be in the reply of a server: see Shown for what is passed on.
func (w *Words) FailUncharged(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	said := err.Error()
	err = Shown(err)
	// The error of a connection after the deadline of ctx is not ctx.Err(), and may come a
	// little before it.
	cause := ctx.Err()
	if cause == nil && errors.Is(err, os.ErrDeadlineExceeded) {
		cause = context.DeadlineExceeded
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	hint, elsewhere := "", false
	switch text := said; {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, context.DeadlineExceeded):
		hint = fmt.Sprintf("no answer within %s: ", w.Timeout)
	case !w.Cluster && (strings.HasPrefix(text, "MOVED ") || strings.HasPrefix(text, "CROSSSLOT ")):
		hint, elsewhere = "the server is part of a Cluster: add `cluster` to the store: ", true
	case errors.Is(err, io.EOF), errors.As(err, new(UnwrittenError)) && errors.Is(err, syscall.ECONNRESET):
		hint = "the server closed the connection; does it want TLS, or are its connections used up: "
	case strings.HasPrefix(text, "NOAUTH ") || strings.Contains(text, "unauthenticated"):
		hint = "the server wants a password: "
	case lacksCommand(text):
		if hint = "take its `rename-command` out of the server's configuration: "; missing(text) == "" {
			hint = "the server lacks a command; all that are needed are " + w.Permissions + ": "
		}
	case strings.HasPrefix(text, noSentinel) && errors.Is(err, goredis.Nil):
		hint = "the Sentinels watch no master of this name; look at `master`: "
	case strings.HasPrefix(text, noSentinel) && strings.Contains(text, "NOPERM "):
		hint = "the user at the Sentinels lacks a permission; all it needs are " + w.SentinelUser + ": "
	case strings.HasPrefix(text, "NOPERM ") || strings.Contains(text, "can't run this command") || strings.Contains(text, "ACL failure in script"):
		hint = "the user lacks a permission; all it needs are " + w.Permissions + ": "
	}
	if reply := goredis.Error(nil); cause == nil && (errors.As(err, &reply) || errors.Is(err, ErrForbidden)) {
		what := window.ErrRefused
		// Foreign data shows in two ways: the script raises WRONGTYPE (Redis puts ERR before
		// it), or it fails with a Lua error, which names " user_script:". Errors of commands
		// say "@user_script" instead.
		if strings.Contains(said, "WRONGTYPE ") || strings.Contains(said, " user_script:") {
			what = window.ErrForeign
		}
		err = fmt.Errorf("%w: %w", what, err)
	}
	err = fmt.Errorf("%s: %w: %s%w", w.Store, window.ErrUnavailable, hint, err)
	if elsewhere {
		w.PartOfCluster()
	}
	return err
}
