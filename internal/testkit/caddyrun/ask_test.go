package caddyrun

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// resetting resets the first connections instead of accepting them.
type resetting struct {
	net.Listener
	first int
}

func (l *resetting) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.first == 0 {
			return conn, err
		}
		l.first--
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// A request on a connection that was not accepted is sent again, once.
func TestClientOutlivesReload(t *testing.T) {
	for _, c := range []struct{ resets, served int }{{0, 1}, {1, 1}, {2, 0}} {
		served := 0
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served++
			if err := r.ParseForm(); err != nil || r.Form.Get("a") != "b" {
				t.Errorf("the form is %v, %v", r.Form, err)
			}
		}))
		server.Listener = &resetting{server.Listener, c.resets}
		server.Start()
		resp, err := NewClient(t).Post(server.URL, "application/x-www-form-urlencoded", strings.NewReader("a=b"))
		if err == nil {
			_ = resp.Body.Close()
		} else if c.served > 0 || !(errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
			t.Errorf("%d resets: %v", c.resets, err)
		}
		server.Close()
		if served != c.served {
			t.Errorf("%d resets: served %d times, want %d", c.resets, served, c.served)
		}
	}
}
