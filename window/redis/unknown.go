package redis

import (
	"errors"
	"net"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// unknown is an error after which the server may have charged the request. It says so
// to errors.Is only, for most errors are of this kind.
type unknown struct{ error }

func (u unknown) Unwrap() error { return u.error }

func (unknown) Is(target error) bool { return target == window.ErrUnknown }

// refusals are how servers begin to say that they have not run a script, or that its
// first write was refused. NOPERM is none: it may be about a later command.
var refusals = []string{
	"ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH",
	"NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS",
}

// uncharged reports whether a call that ended with an error cannot have charged
// anything: it was not sent, or the server said that it did not run it. Where nobody
// can tell, as after a timeout or a lost connection, it may have.
func uncharged(err error) bool {
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" {
		return true
	}
	for _, refusal := range refusals {
		if goredis.HasErrorPrefix(err, refusal+" ") {
			return true
		}
	}
	return errors.Is(err, goredis.ErrClosed) || errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, errNoThrottle)
}
