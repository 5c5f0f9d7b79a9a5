package redis

import (
	"context"
	"errors"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Engine returns the store with the methods that the Caddy module of this repository needs beside those of
// window.Store. No other program needs them, and any version may change them.
func (s *Store) Engine() window.Store { return engineStore{s} }

// engineStore is a Store with what users of internal/engine ask for.
type engineStore struct{ *Store }

var _ interface {
	engine.IntoTaker
	engine.Pinger
	engine.Parted
	engine.LocalAnswerer
	engine.CounterNamer
	engine.KeyHasher
	engine.AlgorithmChecker
	engine.Describer
	engine.Instancer
	engine.InstanceLister
	engine.Holder
	engine.BatchSettler
	engine.Fingerprinter
	bans.Store
} = engineStore{}

// Fingerprints implements engine.Fingerprinter.
func (s engineStore) Fingerprints() (all []string) {
	for i := range s.namings {
		if f := s.namings[i].Fingerprint(); f != "" {
			all = append(all, f)
		}
	}
	return all
}

// CheckAlgorithm implements engine.AlgorithmChecker.
func (s engineStore) CheckAlgorithm(a window.Algorithm) error {
	if g, ok := a.(window.GCRA); ok && g.Native == window.NativeOn && len(s.namings) > 1 {
		return errors.New("algorithm gcra: native on: CL.THROTTLE cannot count under the names of two secrets; use native auto until the former one is taken out")
	}
	return nil
}

// Drain gives back what is left of leases, and takes no more of them. The store still
// decides, until Close.
func (s engineStore) Drain() { s.leases.Drain() }

// Timeout returns the longest that one call waits.
func (s engineStore) Timeout() time.Duration { return s.timeout }

// HasTimeFor reports whether this number of round trips fits into the time until the deadline of
// ctx. Close servers always have time.
func (s engineStore) HasTimeFor(ctx context.Context, trips int64) bool {
	return s.rtt.HasTimeFor(ctx, trips)
}
