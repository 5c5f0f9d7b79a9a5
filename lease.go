package slidingwindow

import (
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// defaultLeaseTTL is how long a lease lasts unless configured.
const defaultLeaseTTL = time.Second

// Lease says how much of a busy key's limit an instance may take ahead.
type Lease struct {
	// Units that are taken ahead at most, 2 or more.
	Units Value `json:"units"`

	// How long they are kept at most, before what is left of them goes back; half
	// of the shortest window in any case. Default: 1s.
	TTL Value `json:"ttl,omitempty"`
}

// engine returns the lease as the engine takes it, or what is wrong with it.
func (l *Lease) engine(algorithm window.Algorithm) (window.Lease, error) {
	if l == nil {
		return window.Lease{}, nil
	}
	if l.Units == "" {
		return window.Lease{}, errors.New("lease: units are missing: write lease <units> [<ttl>]")
	}
	units, err := l.Units.int()
	if err != nil {
		return window.Lease{}, fmt.Errorf("lease: units: %w", err)
	}
	engine := window.Lease{Units: units, TTL: defaultLeaseTTL}
	if l.TTL != "" {
		if engine.TTL, err = l.TTL.duration(); err != nil {
			return window.Lease{}, fmt.Errorf("lease: ttl: %w", err)
		}
	}
	if err := engine.Check(algorithm); err != nil {
		return window.Lease{}, fmt.Errorf("lease: %w", err)
	}
	return engine, nil
}
