package redis_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// listen serves connections until the end of the test, and returns its address.
func listen(t testing.TB, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			group.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return l.Addr().String()
}

// fakeServer answers commands as answer says, for commands that no server in
// these tests has.
func fakeServer(t *testing.T, answer func(args []string) string) string {
	return listen(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			args, err := readCommand(r)
			if err != nil {
				return
			}
			reply := "-ERR unknown command 'HELLO'"
			if !strings.EqualFold(args[0], "hello") {
				reply = answer(args)
			}
			if _, err := io.WriteString(c, reply+"\r\n"); err != nil {
				return
			}
		}
	})
}

// countingProxy passes everything on to a server, and adds up what commands count.
func countingProxy(t *testing.T, to string, counts func(args []string) int64) (addr string, count *atomic.Int64) {
	count = new(atomic.Int64)
	return listen(t, func(c net.Conn) {
		backend, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		var replies sync.WaitGroup
		defer replies.Wait()
		defer func() { _ = backend.Close() }()
		replies.Go(func() {
			_, _ = io.Copy(c, backend)
			_ = c.Close()
		})
		var sent bytes.Buffer
		for r := bufio.NewReader(io.TeeReader(c, &sent)); ; {
			args, err := readCommand(r)
			if err != nil {
				return
			}
			count.Add(counts(args))
			if _, err := sent.WriteTo(backend); err != nil {
				return
			}
		}
	}), count
}

// calls counts a command.
func calls(command string) func(args []string) int64 {
	return func(args []string) int64 {
		if strings.EqualFold(args[0], command) {
			return 1
		}
		return 0
	}
}

// chargesAsked counts the keys of scripts, which is the number of charges.
func chargesAsked(args []string) int64 {
	if !strings.EqualFold(args[0], "evalsha") {
		return 0
	}
	n, _ := strconv.ParseInt(args[2], 10, 64)
	return n
}

func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		if n, err = readLength(r, '$'); err != nil {
			return nil, err
		}
		arg := make([]byte, n+2)
		if _, err := io.ReadFull(r, arg); err != nil {
			return nil, err
		}
		args[i] = string(arg[:n])
	}
	return args, nil
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q does not begin with %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// integers writes a reply, less the end of its last line.
func integers(all ...int64) string {
	reply := fmt.Sprintf("*%d", len(all))
	for _, n := range all {
		reply += fmt.Sprintf("\r\n:%d", n)
	}
	return reply
}
