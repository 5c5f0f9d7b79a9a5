package e2e_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// Whatever the spelling of a request is, it has one counter: what reaches a handler by
// another one does not pass beside the limit.
func TestSpellingsOverHTTP(t *testing.T) {
	stores := map[string]string{"memory": "memory", "redis": "redis {\n\t\t\taddress " + redistest.Start(t).Addr + "\n\t\t\ttimeout 5s\n\t\t}"}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			address := caddyrun.FreeAddress(t)
			_, port, _ := net.SplitHostPort(address)
			const zone = "\t\tzone %[1]s {\n\t\t\tmatch header X-Zone %[1]s\n\t\t\tkey %[2]s\n\t\t\tlimit 1 1h\n\t\t\t%[3]s\n\t\t}\n"
			zones := fmt.Sprintf(zone, "host", "{host}", "") +
				fmt.Sprintf(zone, "hostport", "{hostport}", "") +
				fmt.Sprintf(zone, "labels", "{labels.1}{labels.0}", "") +
				fmt.Sprintf(zone, "path", "{path}", "") +
				fmt.Sprintf(zone, "uri", "{uri}", "") +
				fmt.Sprintf(zone, "orig_uri", "{http.request.orig_uri}", "") +
				fmt.Sprintf(zone, "file", "{file}", "") +
				fmt.Sprintf(zone, "remote", "{remote}", "") +
				fmt.Sprintf(zone, "address", "{header.X-Key}", "ipv4_prefix 24") +
				fmt.Sprintf(zone, "case", "{header.X-Key}", "") +
				fmt.Sprintf(zone, "folded", "{header.X-Key}", "fold_case")
			if err := loadCaddy(fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	storage_clean_interval off
}
(limited) {
	bind 127.0.0.1
	sliding_window {
%[1]s		store %[2]s
	}
	respond 204
}
http://key.test:%[3]s {
	import limited
}
http://:%[3]s {
	import limited
}
`, zones, store, port)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = caddy.Stop() })
			for _, c := range []struct {
				zone   string
				status int // of all but the first
				lines  []string
			}{
				{"host", 429, []string{"/|one.test", "/|ONE.test", "/|one.test.", "/|One.Test.:8080", "/|one.test:80", "/|[one.test]", "http://ONE.test./|x.test"}},
				{"host", 429, []string{"/|key.test", "/|KEY.test", "/|key.test]"}},
				{"host", 204, []string{"/|a.test", "/|b.test", "/|a.b.test"}},
				{"host", 429, []string{"/|[2001:db8::1]", "/|[2001:DB8:0::1]:80", "/|[2001:db8::2]"}},
				{"hostport", 429, []string{"/|one.test", "/|ONE.test:80", "/|one.test.:81"}},
				{"labels", 429, []string{"/|one.test", "/|ONE.test.", "/|one.test.:81"}},
				{"path", 429, []string{"/login", "//login", "/./login", "/x/../login", "/l%6fgin", "/x/%2e%2e/login", "/x%2F..%2Flogin", "/login?a"}},
				{"path", 204, []string{"/a", "/a/", "/A", "/a/b"}},
				{"path", 429, []string{"/", "http://one.test", "//"}},
				{"uri", 429, []string{"/login?a", "//login?a", "/l%6Fgin?a", "/x/..//login?a"}},
				{"uri", 204, []string{"/q?a", "/q?b", "/q", "/q%3Fa"}},
				{"orig_uri", 429, []string{"/login", "//login", "/l%6Fgin?", "http://one.test/login"}},
				{"file", 429, []string{"/login", "/login/.", "/l%6fgin"}},
				{"remote", 429, []string{"/", "/"}},
				{"address", 429, []string{"/||192.0.2.1", "/||192.0.2.2:80", "/||192.0.2.3:443", "/||[::ffff:192.0.2.4]:80"}},
				{"address", 429, []string{"/||[2001:db8::1]:80", "/||2001:db8::2", "/||[2001:DB8::3]"}},
				{"case", 204, []string{"/||Bearer t", "/||bearer T"}},
				{"folded", 429, []string{"/||Bearer t", "/||bearer T", "/|| BEARER T "}},
			} {
				for i, line := range c.lines {
					want := c.status
					if i == 0 {
						want = http.StatusNoContent
					}
					if got := askRaw(t, address, c.zone, line); got != want {
						t.Errorf("%s: %s: got %d, want %d", c.zone, line, got, want)
					}
				}
			}
		})
	}
}

// askRaw sends a request unchanged: target|host|key. It has a connection of its own.
func askRaw(t *testing.T, address, zone, line string) int {
	t.Helper()
	parts := append(strings.Split(line, "|"), "", "", "")
	if parts[1] == "" {
		parts[1] = "test"
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Zone: %s\r\nX-Key: %s\r\nConnection: close\r\n\r\n", parts[0], parts[1], zone, parts[2]); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
