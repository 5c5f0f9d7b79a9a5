package breaker

import (
	"sync/atomic"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// part is a part of a store that is away or not by itself.
type part struct {
	name     string
	open     atomic.Bool
	last     atomic.Int64 // tick of the last failure that counted
	failures atomic.Int64 // in a row
}

// succeeded resets the failures of a part that is not open. It reads failures only: opens sets open
// a moment later, and a reset in between would take an open part out of failing.
func (p *part) succeeded(b *Breaker) {
	if n := p.failures.Load(); n > 0 && n < isOpen && p.failures.CompareAndSwap(n, 0) {
		b.failing.Add(-1)
	}
}

// partsOf returns the named parts that a request needs, but for those that have never failed.
func (b *Breaker) partsOf(charges []window.Charge) (parts []*part) {
	if b.parted == nil || len(charges) == 0 {
		return nil
	}
	var room [4]string
	for _, name := range b.parted.Parts(charges, room[:0]) {
		if p, ok := b.parts.Load(name); ok {
			parts = append(parts, p.(*part))
		}
	}
	return parts
}

// part returns that of a name. It reports whether the part is new.
func (b *Breaker) part(name string) (p *part, isNew bool) {
	if name == "" {
		return b.whole, false
	}
	for {
		v, ok := b.parts.LoadOrStore(name, &part{name: name})
		if p = v.(*part); p.failures.Load() != isGone {
			return p, !ok
		}
		b.parts.CompareAndDelete(name, p)
	}
}

// forget forgets parts that the store no longer has, as nodes that have left a Cluster, when there is another
// one. Those that are open stay until a ping succeeds. b.mu must be held.
func (b *Breaker) forget(newest *part) {
	b.parts.Range(func(name, v any) bool {
		p := v.(*part)
		n := p.failures.Load()
		if p == newest || n < 0 || n >= breakAfter || b.parted.HasPart(p.name) || !p.failures.CompareAndSwap(n, isGone) {
			return true
		}
		if n > 0 {
			b.failing.Add(-1)
		}
		b.parts.CompareAndDelete(name, p)
		return true
	})
}

// fail counts a failure, and returns how many there were in a row. A part that the breaker has
// forgotten has none.
func (p *part) fail() int64 {
	for {
		n := p.failures.Load()
		if n == isGone {
			return 0
		}
		if p.failures.CompareAndSwap(n, n+1) {
			return n + 1
		}
	}
}
