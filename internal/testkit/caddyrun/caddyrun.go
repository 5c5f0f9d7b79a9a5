// Package caddyrun runs Caddy with this plugin, for tests: in a process of its own,
// on free ports of the loopback interface, with a directory of its own to write to.
package caddyrun

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// Environment is that of the test run, before Main changes it.
var Environment = os.Environ()

// home is where Caddy may write.
var home string

// Main runs the tests of a package, for TestMain, and end when they are done. It
// fails if they leave a goroutine behind that no option excuses.
func Main(m interface{ Run() int }, end func(), options ...goleak.Option) int {
	var err error
	if home, err = os.MkdirTemp("", "sliding_window"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(home) }()
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME"} {
		_ = os.Setenv(name, home)
	}
	// A program with the race detector sleeps for a second before it ends, each command of a test too.
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	end()
	// The owners of these goroutines have ended, and the goroutines end when they wake up: the lock of Caddy's
	// storage after 5 s at most, a pool that found no server after one, a store that held units once it is closed.
	for _, function := range []string{
		"github.com/caddyserver/certmagic.keepLockfileFresh",
		"github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial",
		"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/totals.(*Table).run",
	} {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	if err := goleak.Find(options...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Binary builds Caddy with the race detector, once, and returns its path.
func Binary(tb testing.TB) string {
	tb.Helper()
	return built(tb, withRace)
}

// Commands returns a directory for PATH, in which caddy is this one without the race detector: a command of a few
// milliseconds would take four times as long with it.
func Commands(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.Symlink(built(tb, withoutRace), filepath.Join(dir, "caddy")); err != nil {
		tb.Fatal(err)
	}
	return dir
}

var (
	withRace    = sync.OnceValues(func() (string, error) { return build("caddy-with-race", "-race") })
	withoutRace = sync.OnceValues(func() (string, error) { return build("caddy-without-race", "-race=false") })
)

func built(tb testing.TB, build func() (string, error)) string {
	tb.Helper()
	path, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

func build(name, race string) (string, error) {
	if home == "" {
		return "", errors.New("caddyrun: TestMain has to call Main")
	}
	path := filepath.Join(home, name)
	cmd := exec.Command("go", "build", race, "-o", path, "github.com/slidingwindow/caddy-sliding-window/cmd/caddy") //nolint:gosec // of a test
	cmd.Dir = here()                                                                                                // also for tests of other modules
	cmd.Env = Environment                                                                                           // the go command keeps its settings below XDG_CONFIG_HOME
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// here is the folder of this package.
func here() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// Process is a Caddy with this plugin in a process of its own.
type Process struct {
	Admin string // host:port
	Log   *Log
	cmd   *exec.Cmd
}

// Start runs a Caddyfile, with `{admin}` standing for the admin's address, until
// the end of the test, and waits for the addresses to answer.
func Start(tb testing.TB, caddyfile string, addresses ...string) *Process {
	tb.Helper()
	return StartBinary(tb, Binary(tb), caddyfile, addresses...)
}

// StartBinary is Start of another Caddy than this one.
func StartBinary(tb testing.TB, binary, caddyfile string, addresses ...string) *Process {
	tb.Helper()
	p := &Process{Admin: FreeAddress(tb), Log: new(Log)}
	path := filepath.Join(tb.TempDir(), "Caddyfile")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(caddyfile, "{admin}", p.Admin)), 0o600); err != nil {
		tb.Fatal(err)
	}
	p.cmd = exec.Command(binary, "run", "--config", path) //nolint:gosec // built for tests
	p.cmd.Stdout, p.cmd.Stderr = p.Log, p.Log
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.End(tb) })
	for _, address := range addresses {
		Eventually(tb, 20*time.Second, "caddy answers at "+address, func() bool {
			resp, err := http.Get("http://" + address + "/healthz")
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return true
		})
	}
	return p
}

// Logged waits until each of the texts is in the log, which may take longer than an answer.
func (p *Process) Logged(tb testing.TB, texts ...string) {
	tb.Helper()
	for _, text := range texts {
		Eventually(tb, 20*time.Second, "the log has "+text, func() bool { return strings.Contains(p.Log.String(), text) })
	}
}

// Stop suspends the process, and Cont resumes it.
func (p *Process) Stop() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }

// Cont resumes the process.
func (p *Process) Cont() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// LimitFiles lets the process open n files and sockets more than it has.
func (p *Process) LimitFiles(tb testing.TB, n int) {
	tb.Helper()
	pid := strconv.Itoa(p.cmd.Process.Pid)
	open, err := os.ReadDir(filepath.Join("/proc", pid, "fd"))
	if err != nil {
		tb.Fatal(err)
	}
	most := strconv.Itoa(len(open) + n)
	if out, err := exec.Command("prlimit", "--pid", pid, "--nofile="+most).CombinedOutput(); err != nil { //nolint:gosec // of a test
		tb.Fatalf("prlimit: %v\n%s", err, out)
	}
}

// Kill ends the process at once, as kill -9 does, and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// End ends the process as if somebody had pressed Ctrl-C, and waits for it. It may
// be called before the end of the test.
func (p *Process) End(tb testing.TB) {
	tb.Helper()
	p.end(tb, os.Interrupt)
}

// Terminate is End as systemd and containers do it, with SIGTERM.
func (p *Process) Terminate(tb testing.TB) {
	tb.Helper()
	p.end(tb, syscall.SIGTERM)
}

func (p *Process) end(tb testing.TB, signal os.Signal) {
	tb.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	if err := p.cmd.Wait(); err != nil {
		tb.Errorf("caddy ended with %v:\n%s", err, p.Log)
	}
	if strings.Contains(p.Log.String(), "DATA RACE") {
		tb.Errorf("caddy has a data race:\n%s", p.Log)
	}
}

// Log collects what a process writes.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Reset forgets what there is.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Reset()
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// FreeAddress returns an address that no process listens on, another one each time.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(redistest.FreePort(tb)))
}

// Eventually polls until ok, for what no event tells. Patience is 20 s or more, unless it is what the test claims: a busy machine
// of two cores may delay everything.
func Eventually(tb testing.TB, patience time.Duration, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			tb.Fatalf("after %s still not: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
