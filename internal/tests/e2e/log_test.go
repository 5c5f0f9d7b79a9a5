package e2e_test

import (
	"io"
	"regexp"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

func init() {
	caddy.RegisterModule(logWriter{})
}

// caddyLog is what Caddy writes with `output sliding_window_test`.
var caddyLog = new(caddyrun.Log)

type logWriter struct{}

func (logWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.sliding_window_test", New: func() caddy.Module { return new(logWriter) }}
}

func (logWriter) String() string    { return "tests" }
func (logWriter) WriterKey() string { return "sliding_window_test" }

func (logWriter) OpenWriter() (io.WriteCloser, error) { return logWriter{}, nil }

var storeInLog = regexp.MustCompile(`"store":"rediss? ([0-9.:]+)`)

// Write leaves out what stores of tests that have ended say of their servers: a store may stay open for a while.
func (logWriter) Write(p []byte) (int, error) {
	if m := storeInLog.FindSubmatch(p); m != nil && redistest.HasEnded(string(m[1])) {
		return len(p), nil
	}
	return caddyLog.Write(p)
}
func (logWriter) Close() error { return nil }

func (*logWriter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume writer name
	return nil
}
