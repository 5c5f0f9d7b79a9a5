// Package redistest runs real Redis servers for tests: on a free port of the
// loopback interface, in a temporary directory, without persistence. The variable
// REDIS_SERVER names another program than redis-server, such as Valkey's.
package redistest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// patience is how long a server may take to do as it was told.
const patience = 10 * time.Second

// Server is a redis-server process.
type Server struct {
	// Addr is its host:port.
	Addr string
	// TLSAddr is where it listens with a certificate; empty for nowhere.
	TLSAddr string

	dir  string
	file string // of the configuration; empty for none
	args []string
	run  *exec.Cmd
	log  *bytes.Buffer
	done chan struct{} // closed when the process has ended
}

// Start runs a server for the time of the test, with further arguments as
// redis-server takes them.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s, err := Launch(tb.TempDir(), args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ended.Store(s.Addr, nil)
		s.Kill()
	})
	return s
}

// ended has the addresses of the servers whose tests have ended.
var ended sync.Map

// HasEnded reports whether the test of the server at an address has ended. A store that is not closed
// yet may then tell that the server is away, in the log of another test.
func HasEnded(address string) bool {
	_, ok := ended.Load(address)
	return ok
}

// StartTLS is Start, with a second port that wants TLS. Servers reach each other,
// as replicas or in a Cluster, by that port.
func StartTLS(tb testing.TB, cert *Certificate, args ...string) *Server {
	tb.Helper()
	port := strconv.Itoa(FreePort(tb))
	s := Start(tb, append(cert.args(port), args...)...)
	s.TLSAddr = net.JoinHostPort("127.0.0.1", port)
	tb.Cleanup(func() { ended.Store(s.TLSAddr, nil) })
	return s
}

// start is StartTLS if there is a certificate, and else Start.
func start(tb testing.TB, cert *Certificate, args ...string) *Server {
	tb.Helper()
	if cert == nil {
		return Start(tb, args...)
	}
	return StartTLS(tb, cert, args...)
}

// peerAddr is where other servers reach s.
func (s *Server) peerAddr() string {
	if s.TLSAddr != "" {
		return s.TLSAddr
	}
	return s.Addr
}

// Launch runs a server in a directory until Kill, for TestMain.
func Launch(dir string, args ...string) (*Server, error) { return launch(dir, "", args) }

func launch(dir, file string, args []string) (*Server, error) {
	var err error
	for range 5 { // the port may be taken in between
		var port int
		if port, err = freePort(); err != nil {
			return nil, err
		}
		s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir, file: file, args: args}
		if err = s.start(); err == nil || errors.Is(err, exec.ErrNotFound) {
			return s, err
		}
	}
	return nil, err
}

// Stop freezes the process: connections stay, and nothing answers.
func (s *Server) Stop() { _ = s.run.Process.Signal(syscall.SIGSTOP) }

// Cont lets a stopped process go on.
func (s *Server) Cont() { _ = s.run.Process.Signal(syscall.SIGCONT) }

// Kill ends the process at once. It may be called more than once.
func (s *Server) Kill() {
	_ = s.run.Process.Kill()
	<-s.done
}

// Restart starts a killed server again, empty, on the same port.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

// Client returns a client to look into the server with.
func (s *Server) Client(tb testing.TB) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{
		Addr:                     s.Addr,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Command is a redis-server, or what REDIS_SERVER names, that ends with this process. It
// writes to a log.
func Command(log io.Writer, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath(cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server"))
	if err != nil {
		return nil, fmt.Errorf("%w; install it: apt-get install redis-server", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	return cmd, nil
}

// start runs the process and returns when it answers.
func (s *Server) start() error {
	_, port, _ := net.SplitHostPort(s.Addr)
	var args []string
	if s.file != "" {
		args = append(args, s.file)
	}
	args = append(args, "--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no")
	args = append(args, s.args...)
	s.log = new(bytes.Buffer)
	var err error
	if s.run, err = Command(s.log, args...); err != nil {
		return err
	}
	if err := s.run.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	s.done = done
	go func() {
		_ = s.run.Wait()
		close(done)
	}()
	deadline := time.Now().Add(patience)
	for !s.answers() {
		select {
		case <-s.done:
			return fmt.Errorf("%s %s ended:\n%s", s.run.Path, strings.Join(args, " "), s.log)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.Kill()
			return fmt.Errorf("%s %s does not answer:\n%s", s.run.Path, strings.Join(args, " "), s.log)
		}
	}
	return nil
}

// answers reports whether this very process answers on the port.
func (s *Server) answers() bool {
	c, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("INFO server\r\n")); err != nil {
		return false
	}
	own := []byte("process_id:" + strconv.Itoa(s.run.Process.Pid) + "\r\n")
	var reply []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(reply, own) {
		n, err := c.Read(buf)
		if err != nil {
			return false
		}
		reply = append(reply, buf[:n]...)
	}
	return true
}

// Main runs the tests of a package with one server that they share, for
// TestMain.
func Main(m interface{ Run() int }, shared **Server, args ...string) int {
	dir, err := os.MkdirTemp("", "redistest")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		*shared, err = Launch(dir, args...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer (*shared).Kill()
	return m.Run()
}
