// Command load sends requests to a server as fast as it answers, each with a key
// of its own choice in the field X-Key, and prints how many were answered. It does
// as little as it can for a request, on one thread, to leave the machine to the
// server.
//
//	load -address 127.0.0.1:8080 -keys 100000 -length 5s
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Report is what the command prints, as JSON.
type Report struct {
	Requests int64   `json:"requests"`
	Seconds  float64 `json:"seconds"`
	// Answers with another status than the one expected.
	Others int64 `json:"others"`
}

func main() {
	address := flag.String("address", "", "host:port of the server")
	connections := flag.Int("connections", 64, "that are open all the time, with one request under way in each")
	keys := flag.Int("keys", 100_000, "among which a request takes one at random")
	length := flag.Duration("length", 5*time.Second, "how long to count answers")
	status := flag.Int("status", 200, "that is expected")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	report, err := run(*address, *connections, *keys, *length, *status)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address string, connections, keys int, length time.Duration, status int) (Report, error) {
	var answers, others atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make(chan error, connections)
	conns := make([]net.Conn, connections)
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return Report{}, err
		}
		defer func() { _ = conn.Close() }()
		conns[i] = conn
	}
	began := time.Now()
	for i, conn := range conns {
		wg.Go(func() {
			c := client{conn: conn, request: newRequest(address), keys: keys, random: rand.New(rand.NewPCG(uint64(i), uint64(began.UnixNano())))} //nolint:gosec // keys need not be secret
			for !stop.Load() {
				got, err := c.once()
				if err != nil {
					errs <- err
					return
				}
				answers.Add(1)
				if got != status {
					others.Add(1)
				}
			}
		})
	}
	time.Sleep(length)
	report := Report{Requests: answers.Load(), Seconds: time.Since(began).Seconds(), Others: others.Load()}
	stop.Store(true)
	wg.Wait()
	select {
	case err := <-errs:
		return report, err
	default:
		return report, nil
	}
}

// client has one request at a time under way.
type client struct {
	conn    net.Conn
	request request
	keys    int
	random  *rand.Rand
	buffer  [4096]byte
}

// request is written once; only its key changes.
type request struct {
	text []byte
	key  []byte // digits in text
}

func newRequest(host string) request {
	head := "GET / HTTP/1.1\r\nHost: " + host + "\r\nX-Key: "
	text := []byte(head + "0000000\r\n\r\n")
	return request{text, text[len(head) : len(head)+7]}
}

func (r request) setKey(n int) {
	for i := len(r.key) - 1; i >= 0; i-- {
		r.key[i] = byte('0' + n%10)
		n /= 10
	}
}

// once sends a request and returns the status of the answer.
func (c *client) once() (int, error) {
	c.request.setKey(c.random.IntN(c.keys))
	if _, err := c.conn.Write(c.request.text); err != nil {
		return 0, err
	}
	n := 0
	for {
		more, err := c.conn.Read(c.buffer[n:])
		if err != nil {
			return 0, err
		}
		n += more
		status, size, err := parse(c.buffer[:n])
		switch {
		case err != nil:
			return 0, err
		case size == n:
			return status, nil
		case size > len(c.buffer) || size != 0 && size < n || n == len(c.buffer):
			return 0, fmt.Errorf("an answer of %d bytes: %w", size, io.ErrShortBuffer)
		}
	}
}

var (
	endOfHead   = []byte("\r\n\r\n")
	lengthField = []byte("\r\nContent-Length: ")
)

// parse returns the status and the size of an answer, or a size of 0 if there is
// too little of it to say.
func parse(answer []byte) (status, size int, err error) {
	end := bytes.Index(answer, endOfHead)
	if end < 0 {
		return 0, 0, nil
	}
	head := answer[:end+2]
	if len(head) < 12 || !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) {
		return 0, 0, errors.New("no answer of HTTP/1.1")
	}
	if status, err = strconv.Atoi(string(head[9:12])); err != nil {
		return 0, 0, err
	}
	at := bytes.Index(head, lengthField)
	if at < 0 {
		return 0, 0, fmt.Errorf("status %d without Content-Length", status)
	}
	digits := head[at+len(lengthField):]
	digits = digits[:bytes.IndexByte(digits, '\r')]
	body, err := strconv.Atoi(string(digits))
	return status, end + len(endOfHead) + body, err
}
