package settling_test

import (
	"strings"
	"testing"
)

// Go's HTTP/2 server refuses extended CONNECT unless the process starts with GODEBUG=http2xconnect=1, so that
// clients use WebSockets over HTTP/1.1 there (https://go.dev/issue/71128). HTTP/3 has no such switch.
func TestExtendedConnectOfHTTP2(t *testing.T) {
	backEnd, _ := newWebSockets(t)
	s := serveSecurely(t, "settle usage openai", "status 5xx", backEnd)
	conn, err := s.dialHTTP2("key")
	if err == nil {
		conn.close()
	}
	if err == nil || !strings.Contains(err.Error(), "extended connect not supported by peer") {
		t.Errorf("%v, want that Caddy does not offer it", err)
	}
}
