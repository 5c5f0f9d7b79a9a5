package handlertest

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func init() {
	caddy.RegisterModule(logCore{})
}

// logCore hands what Caddy logs to a test.
type logCore struct {
	zapcore.Core `json:"-"`

	Name string `json:"name"`
}

// CaddyModule returns the Caddy module information.
func (logCore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.cores.handlertest", New: func() caddy.Module { return new(logCore) }}
}

// Provision implements caddy.Provisioner.
func (c *logCore) Provision(caddy.Context) error {
	core, ok := logCores.Load(c.Name)
	if !ok {
		return fmt.Errorf("no test of the name %s observes", c.Name)
	}
	c.Core = core.(zapcore.Core)
	return nil
}

var logCores sync.Map

// NewObserved is New for a test that reads the log of a handler, from a level on.
func NewObserved(t testing.TB, level zapcore.LevelEnabler, config string) (caddyhttp.MiddlewareHandler, caddy.Context, *observer.ObservedLogs) {
	t.Helper()
	return observe(t, "observed", level, config)
}

// NewObservedByDefault is NewObserved with what stores and alerts write, too, until another configuration is provisioned.
func NewObservedByDefault(t testing.TB, level zapcore.LevelEnabler, config string) (caddyhttp.MiddlewareHandler, caddy.Context, *observer.ObservedLogs) {
	t.Helper()
	return observe(t, caddy.DefaultLoggerName, level, config)
}

// observe captures the log of a name.
func observe(t testing.TB, log string, level zapcore.LevelEnabler, config string) (caddyhttp.MiddlewareHandler, caddy.Context, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(level)
	logCores.Store(t.Name(), core)
	t.Cleanup(func() { logCores.Delete(t.Name()) })
	name, _ := json.Marshal(t.Name())
	of := &caddy.Config{Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{log: {BaseLog: caddy.BaseLog{
		Level:   "FATAL", // on standard error
		CoreRaw: json.RawMessage(`{"module":"handlertest","name":` + string(name) + `}`),
	}}}}}
	h, ctx := provision(t, of, config)
	_ = logs.TakeAll() // of the start
	return h, ctx, logs
}
