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

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
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

// wideZones is a Caddyfile with long names.
const wideZones = `{
	admin {admin}
	persist_config off
	auto_https off
	storage_clean_interval off
}
http://{site} {
	sliding_window {
		zone search_tenant-003-with-a-name-of-some-length {
			key {header.X-Tenant}/{header.X-User}/{client_ip}
			limit 3 1m
			limit 2000 1d
			top_talkers
		}
		zone logins {
			limit 50000 1h
			limit 900000 1d
		}
		zone uploads-of-another-tenant-with-a-longer-name-than-fits {
			limit 100000 1m
		}
	}
	sliding_window {
		zone fleet {
			limit 100000 1m
		}
		store redis {
			address 127.0.0.1:1
		}
	}
	respond ok
}
`

// Tables and sentences fit the 80 columns of a terminal, with DENIED beside the zone. All of a name is still to be read. With
// --wide, and in a pipe, tables have all columns.
func TestTablesFitTerminals(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	const long, reason = "search_tenant-003-with-a-name-of-some-length", "TICKET-7: the customer moves all of its data today, and asked for ten times as much until the evening"
	site := caddyrun.FreeAddress(t)
	process := caddyrun.Start(t, strings.ReplaceAll(wideZones, "{site}", site), site)
	dir := caddyrun.Commands(t)
	client := caddyrun.NewClient(t)
	for range 5 {
		_ = caddyrun.MustGet(t, client, site, "")
	}
	tell := func(path, body string) {
		if status, answer := process.Tell(t, http.MethodPost, "/sliding_window/"+path, "application/json", body); status >= 300 {
			t.Fatalf("%s: %d %s", path, status, answer)
		}
	}
	tell("overrides/set", `{"zone":"`+long+`","values":["tenant-with-a-long-name","user-with-a-long-name@example.com","192.0.2.1"],"limits":[{"max":30,"window":"1m"},{"max":20000,"window":"1d"}],"ttl":"1h","reason":"`+reason+`"}`)
	t.Cleanup(func() { tell("overrides/replace", `{"records":[],"store":"memory"}`) })
	run := func(args string) string {
		args += " --address " + process.Admin
		return strings.ReplaceAll(onTerminal(t, dir, "", strings.Fields("sliding-window "+args)...), "\r\n", "\n")
	}
	for _, c := range []struct {
		args string
		want []string // without blanks and breaks
	}{
		{"zones", []string{"ZONEDENIEDALLOWED", "STOREoffleet:redis127.0.0.1:1/0sw", "ALGORITHMzset", "ONERRORlocal"}},
		{"enforce shadow --zone logins --ttl 1h", []string{"logins", "shadowuntil20"}},
		{"zones", []string{"ZONEDENIEDALLOWED", "shadow"}},
		{"status", []string{"redis127.0.0.1:1", "away", "CAUSEof"}},
		{"override list", []string{"REASONof", "30in1m,", "user-with-a-l"}},
		{"top --zone " + long, []string{"KEYCOUNT"}},
		{"inspect --zone " + long + " --value tenant-with-a-long-name --value user-with-a-long-name@example.com --value 192.0.2.1", []string{"30in1m", "LIMITUSED"}},
		{"inspect --remote 127.0.0.1 --url http://" + site + "/a", []string{"ZONE", "LIMIT", "USED", "3in1m"}},
	} {
		got := run(c.args)
		bare := strings.Join(strings.Fields(got), "")
		for _, want := range c.want {
			if !strings.Contains(bare, want) {
				t.Errorf("%s: want %q in\n%s", c.args, want, got)
			}
		}
		for line := range strings.Lines(got) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
				t.Errorf("%s: a line takes %d columns:\n%s", c.args, n, got)
				break
			}
		}
		t.Logf("$ %s\n%s", c.args, got)
	}
	wide := run("zones --wide")
	piped, problems, ok := shell(t, dir, "", "caddy sliding-window zones --address "+process.Admin)
	if !ok || piped != wide || !strings.Contains(wide, long) || !strings.Contains(wide, "SHADOW DENIED") || strings.Count(wide, "zset") != 4 {
		t.Errorf("--wide: got\n%s\nand a pipe\n%s%s", wide, piped, problems)
	}
}

// What lint finds fits on a terminal. Addresses of pages stay in one piece.
func TestLintOnTerminals(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	dir := caddyrun.Commands(t)
	caddyfile := strings.ReplaceAll(mistaken, "\t\t\tcost 20\n", "") // without the error, for the exit status
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(caddyfile), 0o600); err != nil {
		t.Fatal(err)
	}
	const width = 80 // of a terminal that does not tell
	got := onTerminal(t, dir, "", "sliding-window", "lint")
	for line := range strings.Lines(got) {
		if line = strings.TrimRight(line, "\r\n"); len(line) > width && !strings.HasPrefix(line, "https://") {
			t.Errorf("a line has %d columns: %s", len(line), line)
		}
	}
	if !strings.Contains(got, "0 errors, 2 warnings, 1 note.") {
		t.Errorf("a terminal gets\n%s", got)
	}
}
