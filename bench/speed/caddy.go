package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// build compiles Caddy and the load, once.
func (b *bench) build() error {
	if _, err := os.Stat(filepath.Join(b.dir, "load")); err == nil {
		return nil
	}
	out, err := exec.Command("go", "build", "-o", b.dir, "./caddy", "./load").CombinedOutput() //nolint:gosec // our own directory
	if err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", workingDirectory(), err, out)
	}
	return nil
}

func workingDirectory() string {
	dir, _ := os.Getwd() // for a message
	return dir
}

// caddy is a process of its own.
type caddy struct {
	addr string
	run  *exec.Cmd
}

// freeAddress returns an address at which nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// newCaddy starts a Caddy with one site, until the table is done.
func (b *bench) newCaddy(directives string) (*caddy, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	c := &caddy{addr: addr}
	dir, err := os.MkdirTemp(b.dir, "site")
	if err != nil {
		return nil, err
	}
	// Logs would be the same for all. One handler would also log each denial; leaving that
	// out is in its favor.
	const global = "{\nadmin off\npersist_config off\nauto_https off\nlog {\noutput discard\nlevel ERROR\n}\n}\n"
	text := fmt.Sprintf("%shttp://%s {\nroute {\n%s\nrespond ok\n}\n}\n", global, c.addr, directives)
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	var messages bytes.Buffer
	c.run = exec.Command(filepath.Join(b.dir, "caddy"), "run", "--config", file) //nolint:gosec // built by us
	c.run.Stderr = &messages
	c.run.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	c.run.SysProcAttr = childAttr()
	if err := c.run.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.run.Wait() }()
	b.atEnd(func() { _ = c.run.Process.Kill(); <-ended })
	for range 1000 {
		if conn, err := net.Dial("tcp", c.addr); err == nil {
			return c, conn.Close()
		}
		select {
		case <-ended:
			return nil, fmt.Errorf("caddy ended: %s", messages.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil, errors.New("caddy does not listen")
}

// cpu returns the processor time that the process has used, in µs; NaN where the
// system does not say.
func (c *caddy) cpu() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.run.Process.Pid))
	if err != nil {
		return math.NaN()
	}
	// The name of the process, in brackets, may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return math.NaN()
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	if errors.Join(err1, err2) != nil {
		return math.NaN()
	}
	const tick = 1e4 // µs; USER_HZ is 100 everywhere
	return (user + system) * tick
}

// loaded is what the command load prints.
type loaded struct {
	Requests, Others int64
	Seconds          float64
	cpu              float64 // of the process, in µs
}

// load sends requests to a Caddy, and fails unless all are answered with a status;
// 0 for any.
func (b *bench) load(c *caddy, length time.Duration, keys, status int) (loaded, error) {
	run := exec.Command(filepath.Join(b.dir, "load"), "-address", c.addr, "-keys", strconv.Itoa(keys), //nolint:gosec // built by us
		"-length", length.String(), "-status", strconv.Itoa(status))
	run.SysProcAttr = childAttr()
	out, err := run.Output()
	if err != nil {
		if e := new(exec.ExitError); errors.As(err, &e) {
			err = fmt.Errorf("load: %w: %s", err, e.Stderr)
		}
		return loaded{}, err
	}
	var l loaded
	if err := json.Unmarshal(out, &l); err != nil {
		return l, fmt.Errorf("load: %w", err)
	}
	l.cpu = float64((run.ProcessState.UserTime() + run.ProcessState.SystemTime()).Microseconds())
	if status != 0 && l.Others > 0 {
		return l, fmt.Errorf("load: %d of %d answers were not %d", l.Others, l.Requests, status)
	}
	return l, nil
}
