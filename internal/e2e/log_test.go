package e2e_test

import (
	"io"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/caddyrun"
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

func (logWriter) Write(p []byte) (int, error) { return caddyLog.Write(p) }
func (logWriter) Close() error                { return nil }

func (*logWriter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume writer name
	return nil
}
