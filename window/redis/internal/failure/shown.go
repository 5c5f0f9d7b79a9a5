package failure

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"
)

// kinds are how errors of servers begin, and what is said of each after that. Servers repeat
// what they were told, a password or the key of a client, in many an error, and those that
// look like Redis in any: no other word of theirs is passed on.
var kinds = [][2]string{
	{"ASK", "another node takes the slot over"},
	{"BUSY", "a script of another client keeps the server busy"},
	{"CLUSTERDOWN", "the Cluster is not complete"},
	{"CROSSSLOT", "the keys belong to several slots"},
	{"DENIED", "protected mode lets in no client from another host"},
	{"EXECABORT", "the transaction was given up"},
	{"LOADING", "the server is loading its data"},
	{"MASTERDOWN", "the replica has lost its master"},
	{"MISCONF", "the server cannot write its data to disk, and refuses writes"},
	{"MOVED", "the slot belongs to another node"},
	{"NOAUTH", "authentication is required"},
	{"NOPERM", "the user may not do this"},
	{"NOPROTO", "the version of the protocol is not supported"},
	{"NOREPLICAS", "there are too few replicas to write"},
	{"NOSCRIPT", "the script is not known"},
	{"OOM", "the server has no memory left for writes"},
	{"READONLY", "the server is a replica"},
	{"TRYAGAIN", "the slot is on its way to another node"},
	{"UNKILLABLE", "a script of another client keeps the server busy"},
	{"WRONGPASS", "the server does not accept user name and password, or the user is off"},
	{"WRONGTYPE", "the key holds a value of another type"},
	{"ERR max number of clients", "the connections of the server are used up; raise its maxclients, or lower pool_size"},
	{"ERR DB index is out of range", "the server has no such database; look at `db`"},
	{"ERR invalid DB index", "the server has no such database; look at `db`"},
	{"ERR SELECT is not allowed", "a Cluster has only database 0"},
	{"ERR This instance has cluster support disabled", "the server is not part of a Cluster; take `cluster` out"},
	{"ERR Client sent AUTH, but no password is set", "the server has no password for this user"},
	{"ERR AUTH ", "the server has no password for this user"},
	{"ERR invalid password", "the server does not accept the password"},
	{"ERR Protocol error", "the call is longer than the server takes"},
	{"ERR The user executing the script can't run this command", "the user may not run a command that the script needs"},
	{"ERR ACL failure in script", "the user may not run a command that the script needs"},
	{"ERR Error running script", "the script failed"},
	{"ERR Error compiling script", "the server does not understand the script"},
	{"ERR user_script", "the script failed"},
}

// replyOf returns the error of a server in words that do not come from it.
func replyOf(err goredis.Error) error {
	text := err.Error()
	if lacksCommand(text) {
		return RefusalError("ERR unknown command (" + cmp.Or(missing(text), "a command") + " was renamed, or does not exist here)")
	}
	for _, text := range []string{text, strings.TrimPrefix(text, "ERR ")} { // which precedes what a script says
		for _, kind := range kinds {
			if rest, ok := strings.CutPrefix(text, kind[0]); ok && (rest == "" || strings.Contains(kind[0], " ") || rest[0] == ' ') {
				return RefusalError(strings.TrimSuffix(kind[0], " ") + " (" + kind[1] + ")")
			}
		}
	}
	return RefusalError("ERR (the server said something else)")
}

// Shown returns an error without what a server said. It is of the same kind to errors.Is and
// errors.As, as far as that matters here.
func Shown(err error) error {
	if err == nil {
		return nil
	}
	if err == goredis.Nil { //nolint:errorlint // wrapped ones are unwrapped below
		return err
	}
	for _, known := range []error{
		context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, net.ErrClosed,
		goredis.ErrClosed, goredis.ErrPoolTimeout, goredis.ErrPoolExhausted, ErrUncertain, ErrForbidden, ErrNoConnection, ErrShared, ErrLater,
	} {
		if err == known { //nolint:errorlint // as above
			return err
		}
	}
	switch e := err.(type) { //nolint:errorlint // as above
	case OwnError, syscall.Errno, *net.OpError, *net.DNSError, net.Error, *tls.CertificateVerificationError, tls.RecordHeaderError, tls.AlertError,
		x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return err
	case UnwrittenError:
		return UnwrittenError{Shown(e.error)}
	case UnsharedError:
		return UnsharedError{Shown(e.error)}
	case goredis.Error:
		return replyOf(e)
	case interface{ Unwrap() []error }:
		return shownEach(e.Unwrap())
	}
	if inner := errors.Unwrap(err); inner != nil {
		if strings.HasPrefix(err.Error(), noSentinel) {
			return fmt.Errorf("%s specified in configuration are unreachable: %w", noSentinel, Shown(inner))
		}
		return Shown(inner)
	}
	return errStrange
}

func shownEach(errs []error) error {
	each := make([]error, len(errs))
	for i, err := range errs {
		each[i] = Shown(err)
	}
	if len(each) == 2 {
		return fmt.Errorf("%w: %w", each[0], each[1])
	}
	return errors.Join(each...)
}
