package e2e_test

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func init() {
	caddy.RegisterModule(execHandler{})
}

// execHandler is a handler of events with the name and the syntax of caddy-events-exec. It notes what it
// would run.
type execHandler struct {
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
}

// executed are the commands of events so far, one a line.
var executed commands

type commands struct {
	mu    sync.Mutex // guards what follows
	all   []string
	block chan struct{} // nil: handlers return at once
}

// begin forgets all commands. With a channel, handlers wait until that is closed.
func (c *commands) begin(block chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all, c.block = nil, block
}

// with returns the commands that begin with a text.
func (c *commands) with(prefix string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.all), func(line string) bool { return !strings.HasPrefix(line, prefix) })
}

func (execHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.exec", New: func() caddy.Module { return new(execHandler) }}
}

func (h *execHandler) Handle(ctx context.Context, _ caddy.Event) error {
	repl := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	line := repl.ReplaceAll(strings.Join(append([]string{h.Command}, h.Args...), " "), "")
	executed.mu.Lock()
	executed.all = append(executed.all, line)
	block := executed.block
	executed.mu.Unlock()
	if block != nil {
		<-block
	}
	return nil
}

func (h *execHandler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume handler name
	if !d.Args(&h.Command) {
		return d.ArgErr()
	}
	h.Args = d.RemainingArgs()
	return nil
}
