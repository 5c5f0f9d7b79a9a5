package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
)

// Servers listen below the ports that systems give to connections (on Linux from
// 32768 on), and so do the buses of a Cluster: no connection takes such a port between
// freePort and the server that is to have it, nor while a server is down.
const (
	firstPort = 10000
	ports     = 10000
	// bus is how far above its port a node of a Cluster listens for the others.
	bus = 10000
)

// nextPort counts the ports that freePort has tried. It begins somewhere, as the tests
// of other packages run in other processes.
var nextPort atomic.Uint32

func init() { nextPort.Store(rand.Uint32N(ports)) }

// FreePort returns a port of the loopback interface that no process listens on, another one
// each time.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

func freePort() (int, error) {
	var err error
	for range ports {
		port := firstPort + int(nextPort.Add(1)%ports)
		if err = listen(port); err == nil {
			err = listen(port + bus)
		}
		if err == nil {
			return port, nil
		}
	}
	return 0, err
}

// listen reports an error if the port is taken.
func listen(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}
