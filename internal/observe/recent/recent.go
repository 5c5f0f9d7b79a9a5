// Package recent keeps what zones have decided in the last minutes. It does not import Caddy.
package recent

import (
	"math"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

const (
	// Step is how long a sample is.
	Step = 2 * time.Second
	// Samples is how many samples are kept: those of three minutes.
	Samples = 90
	// early is how much before its time a sample may be taken: the ticker of the caller jitters.
	early = Step / 4
	// lost is how late a sample may be. After a longer gap, such as the sleep of a laptop, History begins anew.
	lost = 5 * Step
)

// Counts are decisions since any time in the past.
type Counts struct{ Decisions, Denied, WouldDeny int64 }

// Plus returns the sum of two counts.
func (c Counts) Plus(o Counts) Counts {
	return Counts{c.Decisions + o.Decisions, c.Denied + o.Denied, c.WouldDeny + o.WouldDeny}
}

// Minus returns c less o.
func (c Counts) Minus(o Counts) Counts {
	return Counts{c.Decisions - o.Decisions, c.Denied - o.Denied, c.WouldDeny - o.WouldDeny}
}

// History is what a zone has decided in the last minutes. The zero History is empty. It takes 1.1 kB. It is safe
// for concurrent use.
type History struct {
	mu      sync.Mutex // guards what follows
	at      time.Time  // of last; zero: no counts yet
	last    Counts
	samples [Samples]sample // a ring
	n       int             // how many there are
	next    int             // place of the next one
}

// sample has rates per second.
type sample struct{ decisions, denied, wouldDeny float32 }

// Due reports whether it is time for Note.
func (h *History) Due(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Sub(h.at) >= Step-early
}

// Note takes the counts at a time.
func (h *History) Note(now time.Time, c Counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	passed, last := now.Sub(h.at), h.last
	h.at, h.last = now, c
	if passed > lost || c.Decisions < last.Decisions || c.Denied < last.Denied || c.WouldDeny < last.WouldDeny {
		h.n, h.next = 0, 0
		return
	}
	rate := func(from, to int64) float32 { return float32(float64(to-from) / passed.Seconds()) }
	h.samples[h.next] = sample{rate(last.Decisions, c.Decisions), rate(last.Denied, c.Denied), rate(last.WouldDeny, c.WouldDeny)}
	h.next = (h.next + 1) % Samples
	h.n = min(h.n+1, Samples)
}

// Shown returns the samples, the oldest first; nil without any. Lists of which all are 0 are left out.
func (h *History) Shown() *control.Recent {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == 0 {
		return nil
	}
	return &control.Recent{
		Until: h.at.UTC().Format("2006-01-02T15:04:05.000Z07:00"), Step: Step.Seconds(), Samples: h.n,
		Decisions: h.list(func(s sample) float32 { return s.decisions }),
		Denied:    h.list(func(s sample) float32 { return s.denied }),
		WouldDeny: h.list(func(s sample) float32 { return s.wouldDeny }),
	}
}

// list returns one rate of all samples, to the hundredth. h.mu must be held.
func (h *History) list(of func(sample) float32) []float64 {
	all, some := make([]float64, h.n), false
	for i := range all {
		all[i] = math.Round(100*float64(of(h.samples[(h.next-h.n+i+Samples)%Samples]))) / 100
		some = some || all[i] > 0
	}
	if !some {
		return nil
	}
	return all
}
