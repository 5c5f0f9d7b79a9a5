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
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/lua"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"

	goredis "github.com/redis/go-redis/v9"
)

// said is an error in the words of a server.
func said(text string) error { return RefusalError(text) }

// What a server says decides which errors are told apart, whether the request may have been charged, and which cure is named. None
// of the server's own words are passed on.
func TestFail(t *testing.T) {
	const unknown, refused, foreign, busy = 1, 2, 4, 8
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err   error
		kind  int
		shown string // is in the error
	}{
		{said("NOSCRIPT s3cret"), refused, "NOSCRIPT (the script is not known)"},
		{said("ERR NOSCRIPT s3cret"), refused, "NOSCRIPT ("},
		{said("OOM s3cret"), refused, "no memory left"},
		{said("READONLY s3cret"), refused, "is a replica"},
		{said("OOMs3cret"), refused | unknown, "the server said something else"},
		{said("s3cret"), refused | unknown, "the server said something else"},
		{said("WRONGTYPE s3cret"), refused | foreign, "another type"},
		{said("ERR user_script:5: s3cret"), refused | unknown | foreign, "the script failed"},
		{said("ERR Error running script: user_script:5: s3cret"), refused | unknown | foreign, "the script failed"},
		{said("NOPERM s3cret"), refused, "all it needs are +all"},
		{said("NOPERM s3cret script: 1234"), refused | unknown, "all it needs are +all"},
		{said("ERR unknown command 'EVALSHA', with args beginning with: 's3cret'"), refused, "(EVALSHA was renamed, or does not exist here)"},
		{said("ERR unknown command 's3cret'"), refused, "lacks a command; all that are needed are +all"},
		{said("NOAUTH s3cret"), refused, "wants a password"},
		{said("WRONGPASS s3cret"), refused, "does not accept user name and password"},
		{said("MOVED 1 s3cret"), refused, "add `cluster` to the store"},
		{said("ERR Protocol error: s3cret"), refused, "longer than the server takes"},
		{dial, 0, "connection refused"},
		{Unwritten(io.EOF), 0, "does it want TLS"},
		{io.EOF, unknown, "does it want TLS"},
		{os.ErrDeadlineExceeded, unknown, "no answer within 1s"},
		{Unwritten(os.ErrDeadlineExceeded), 0, "no answer within 1s"},
		{goredis.ErrClosed, 0, "client is closed"},
		{ErrNoThrottle, 0, "load redis-cell"},
		{ErrForbidden, refused | unknown, "NOPERM in a script"},
		{ErrUncertain, unknown, "may have charged it"},
		{Unwritten(ErrShared), busy, "others use those that are open"},
		{Unshared(fmt.Errorf("s3cret: %w", dial)), busy, "connection refused"},
		{errors.New("s3cret"), unknown, string(errStrange)},
		{fmt.Errorf("s3cret: %w: %w", io.ErrUnexpectedEOF, said("OOM s3cret")), refused, "unexpected EOF: OOM ("},
	} {
		moved := 0
		w := Words{Store: "redis here", Timeout: time.Second, Permissions: "+all", SentinelUser: "+few", PartOfCluster: func() { moved++ }}
		got := w.Fail(t.Context(), c.err)
		kind := 0
		for k, is := range map[int]error{unknown: window.ErrUnknown, refused: window.ErrRefused, foreign: window.ErrForeign, busy: window.ErrBusy} {
			if errors.Is(got, is) {
				kind |= k
			}
		}
		if kind&foreign != 0 {
			kind |= refused
		}
		if text := got.Error(); kind != c.kind || !errors.Is(got, window.ErrUnavailable) || !strings.HasPrefix(text, "redis here: ") || !strings.Contains(text, c.shown) || strings.Contains(text, "s3cret") {
			t.Errorf("%v becomes %v, of kind %04b; want %04b, and %q", c.err, got, kind, c.kind, c.shown)
		}
		if want := strings.Count(c.err.Error(), "MOVED"); moved != want {
			t.Errorf("%v: PartOfCluster was called %d times", c.err, moved)
		}
	}
	w := Words{Cluster: true, PartOfCluster: func() { t.Error("a Cluster is told that it is one") }}
	if got := w.Fail(t.Context(), said("MOVED 1 s3cret")); strings.Contains(got.Error(), "add `cluster`") || w.Fail(t.Context(), nil) != nil {
		t.Errorf("of a Cluster: %v", got)
	}
}

// A caller that has gone, or whose time is over, learns that first: what a server or a connection says then has no cure.
func TestFailLate(t *testing.T) {
	w := Words{Store: "redis here", Timeout: time.Second}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got := w.Fail(gone, said("OOM s3cret")); !errors.Is(got, context.Canceled) || errors.Is(got, window.ErrRefused) {
		t.Errorf("got %v, want Canceled and no refusal", got)
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if got := w.Fail(late, io.EOF); !errors.Is(got, context.DeadlineExceeded) || !strings.Contains(got.Error(), "no answer within 1s") || strings.Contains(got.Error(), "TLS") {
		t.Errorf("got %v, want DeadlineExceeded and its cure", got)
	}
}

// An error names a missing command only if the store uses it. The name comes from the server's message, or from the line of the script.
func TestMissing(t *testing.T) {
	line := 0
	for i, text := range strings.Split(lua.Script, "\n") {
		if strings.Contains(text, "call('ZADD'") || strings.Contains(text, "call, 'ZADD'") {
			line = i + 1
		}
	}
	if line == 0 {
		t.Fatal("the script does not call ZADD")
	}
	for _, c := range []struct{ said, want string }{
		{"ERR unknown command 'evalsha', with args", "EVALSHA"},
		{"ERR ERR unknown command `zadd`", "ZADD"},
		{"ERR unknown subcommand 'slots'. Try CLUSTER HELP.", "SLOTS"},
		{"ERR unknown command 'secretword'", ""},
		{fmt.Sprintf("ERR %s script: %s, on @user_script:%d.", ofScripts, scripts.Decide, line), "ZADD"},
		{fmt.Sprintf("ERR %s script: %s, on @user_script:%d.", ofScripts, strings.Repeat("0", 40), line), ""},
		{fmt.Sprintf("ERR %s script: %s, on @user_script:9999999.", ofScripts, scripts.Decide), ""},
	} {
		if got := missing(c.said); !lacksCommand(c.said) || got != c.want {
			t.Errorf("%q: lacks a command: %v, %q; want %q", c.said, lacksCommand(c.said), got, c.want)
		}
	}
}
