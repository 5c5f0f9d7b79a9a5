package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// StartSentinel runs a Sentinel that alone watches a master, for the time of the
// test.
func StartSentinel(tb testing.TB, master *Server, name string) *Server {
	tb.Helper()
	host, port, _ := net.SplitHostPort(master.Addr)
	dir := tb.TempDir()
	file := filepath.Join(dir, "sentinel.conf") // which the Sentinel writes to
	if err := os.WriteFile(file, fmt.Appendf(nil, "sentinel monitor %s %s %s 1\n", name, host, port), 0o600); err != nil {
		tb.Fatal(err)
	}
	s, err := launch(dir, file, []string{"--sentinel"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	return s
}
