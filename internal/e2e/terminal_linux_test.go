package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unsafe"

	"github.com/slidingwindow/caddy-sliding-window/internal/caddyrun"
)

// openTerminal returns both ends of a pseudo-terminal: what is written to inner is read from outer.
func openTerminal(t *testing.T) (outer, inner *os.File) {
	t.Helper()
	const (
		unlock = 0x40045431 // TIOCSPTLCK
		number = 0x80045430 // TIOCGPTN
	)
	outer, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = outer.Close() })
	conn, err := outer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	control := func(request uintptr, value *int32) {
		var errno syscall.Errno
		if err := conn.Control(func(fd uintptr) {
			_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(value)))
		}); err != nil || errno != 0 {
			t.Fatal(err, errno)
		}
	}
	var locked, n int32
	control(unlock, &locked)
	control(number, &n)
	inner, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return outer, inner
}

// onTerminal returns what a terminal gets from a command.
func onTerminal(t *testing.T, dir, stdin string, args ...string) string {
	t.Helper()
	outer, inner := openTerminal(t)
	cmd := exec.Command(filepath.Join(dir, "caddy"), args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout = dir, strings.NewReader(stdin), inner
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = inner.Close()             // the command has its own
	got, err := io.ReadAll(outer) // up to when nothing has the other end any more,
	_, eio := err.(*os.PathError) // of which Linux tells by an error
	if wait := cmd.Wait(); wait != nil || err != nil && !eio {
		t.Fatalf("%q: %v, %v: %s", args, wait, err, got)
	}
	return string(got)
}

// The key of a client reaches no terminal as a command: not in tables, and not in JSON, which means the same there as in a
// pipe.
func TestKeysOnTerminals(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	dir, process := operate(t)
	const key = "a\u009b31m\u009d0;title\u202edcba\u2066\u200f\ufeff\U000e0041é"
	client := caddyrun.NewClient(t)
	site := siteOf(t, dir)
	for range 3 { // the third is denied
		req, err := http.NewRequest(http.MethodGet, "http://"+site, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"X-Client", "X-Tenant", "X-User", "X-Token"} {
			req.Header.Set(field, key)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	process.Tell(t, http.MethodPost, "/sliding_window/overrides/set", "application/json", `{"zone":"per_client","key":"`+key+`","deny":true,"ttl":"1h","reason":"`+key+`"}`)
	for _, args := range []string{"top --zone per_client", "inspect --zone per_client --key -", "override list"} {
		args += " --address " + process.Admin
		for _, format := range []string{"", " --json"} {
			got := onTerminal(t, dir, key, strings.Fields("sliding-window "+args+format)...)
			if strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && r != '\r' && !unicode.IsPrint(r) }) || !strings.Contains(got, `a\u009b31m`) {
				t.Errorf("%s%s: a terminal gets %q, want the key with escapes", args, format, got)
			}
			if format == "" {
				continue
			}
			piped, problems, ok := shell(t, dir, key, "caddy sliding-window "+args+format)
			if !ok || !strings.Contains(piped, key) {
				t.Errorf("%s: a pipe gets %q, want the key as it is: %s", args, piped, problems)
			}
			var shown, sent any
			if err := json.Unmarshal([]byte(got), &shown); err != nil {
				t.Errorf("%s: %v in %q", args, err, got)
			}
			if err := json.Unmarshal([]byte(piped), &sent); err != nil || !reflect.DeepEqual(shown, sent) {
				t.Errorf("%s: a terminal gets %v, and a pipe %v (%v)", args, shown, sent, err)
			}
		}
	}
}
