package stores

import (
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func init() {
	caddy.RegisterModule(Memory{})
}

// Memory keeps counts in this process: for one instance, or where each instance
// has a limit of its own. There is one such store in a process; counts outlive
// reloads, and end with the process.
type Memory struct {
	// How many keys are kept at most. When there are more, those go first that
	// have expired or used little of their limit; a key that denies is never
	// dropped. Where several handlers say so, the largest number counts. Default:
	// 1000000.
	MaxKeys int64 `json:"max_keys,omitempty"`

	pooled *pooled
}

var memories = caddy.NewUsagePool()

// caps are the max_keys of the live modules.
var caps = struct {
	sync.Mutex
	of map[*Memory]int64
	// The stores that ShadowStore has returned and that are not closed.
	shadows map[*shadowMemory]struct{}
}{of: make(map[*Memory]int64), shadows: make(map[*shadowMemory]struct{})}

// CaddyModule returns the Caddy module information.
func (Memory) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.sliding_window.stores.memory", New: func() caddy.Module { return new(Memory) }}
}

// Provision implements caddy.Provisioner.
func (m *Memory) Provision(caddy.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	if m.MaxKeys == 0 {
		m.MaxKeys = memory.DefaultMaxKeys
	}
	var err error
	if m.pooled, err = acquire(memories, "memory", func() window.Store { return memory.New(memory.Options{}) }); err != nil {
		return fmt.Errorf("store memory: %w", err)
	}
	m.setCap(m.MaxKeys)
	return nil
}

// Cleanup implements caddy.CleanerUpper.
func (m *Memory) Cleanup() error {
	if m.pooled == nil {
		return nil
	}
	m.setCap(0)
	return m.pooled.release()
}

// setCap notes what m wants, 0 for nothing any more, and applies the largest.
func (m *Memory) setCap(n int64) {
	caps.Lock()
	defer caps.Unlock()
	caps.of[m] = n
	if n == 0 {
		delete(caps.of, m)
	}
	if largest := largestCap(); largest > 0 {
		m.pooled.store.Store.(*memory.Store).SetMaxKeys(largest)
		for s := range caps.shadows {
			s.SetMaxKeys(largest)
		}
	}
}

// largestCap returns the largest max_keys of the live modules; 0 if no module lives. The lock of
// caps must be held.
func largestCap() (largest int64) {
	for _, n := range caps.of {
		largest = max(largest, n)
	}
	return largest
}

// shadowMemory is a store for zones that do not deny. It has the max_keys of the store of zones that do.
type shadowMemory struct{ *memory.Store }

// ShadowStore returns a store with memory of its own; see slidingwindow.ShadowModule. It keeps up to
// max_keys keys.
func (m *Memory) ShadowStore() window.Store {
	caps.Lock()
	defer caps.Unlock()
	s := &shadowMemory{memory.New(memory.Options{MaxKeys: largestCap()})}
	caps.shadows[s] = struct{}{}
	return s
}

// Close implements window.Store.
func (s *shadowMemory) Close() error {
	caps.Lock()
	delete(caps.shadows, s)
	caps.Unlock()
	return s.Store.Close()
}

func (m *Memory) check() error {
	if m.MaxKeys < 0 || m.MaxKeys > math.MaxInt32 {
		return fmt.Errorf("store memory: max_keys %d: must be from 1 to %d", m.MaxKeys, math.MaxInt32)
	}
	return nil
}

// Store returns the store; see slidingwindow.StoreModule.
func (m *Memory) Store() window.Store { return m.pooled.store.Store }

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	memory {
//		max_keys <n>
//	}
func (m *Memory) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume module name
	if d.NextArg() {
		return suggest.ArgErrOf(d, syntax)
	}
	seen := make(suggest.Seen)
	for d.NextBlock(0) {
		if err := seen.Once(d); err != nil {
			return err
		}
		if d.Val() != "max_keys" {
			return errOption(d, foreign.Memory, []string{"max_keys"})
		}
		var value string
		if !d.AllArgs(&value) {
			return suggest.ArgErrOf(d, syntax)
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return d.Errf("store memory: max_keys %q is not a whole number", value)
		}
		if n == 0 {
			return d.Errf("store memory: max_keys %d: must be from 1 to %d", n, math.MaxInt32)
		}
		m.MaxKeys = n
		if err := m.check(); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// Interface guards.
var (
	_ caddy.Provisioner     = (*Memory)(nil)
	_ caddy.CleanerUpper    = (*Memory)(nil)
	_ caddyfile.Unmarshaler = (*Memory)(nil)
)
