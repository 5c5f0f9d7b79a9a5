package load

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
)

// Sensor returns the present value of a signal. It is called by one goroutine at a time.
type Sensor func() (float64, error)

// ErrNotYet is the error of a sensor that has to be read once more.
var ErrNotYet = errors.New("not known yet")

// Sampler reads sensors while zones run. Its methods are safe for concurrent use.
type Sampler struct {
	// Set them before the first zone is made. Warn is called once for each sensor that fails.
	CPU, Memory Sensor
	Warn        func(s Signal, err error)
	// Manual leaves it to Step to take samples.
	Manual bool

	mu      sync.Mutex // guards what follows
	zones   []*Controller
	running int
	stop    chan struct{}
	done    chan struct{}
	warned  [signals]bool

	latest [Latency]atomic.Uint64 // bits of a float64 above 0; 0: not known
}

// Process is the Sampler of this process. Tests set another one before a zone is made.
var Process = newProcess()

func newProcess() *Sampler {
	s := new(Sampler)
	s.CPU, s.Memory = Sensors()
	s.Warn = warn
	return s
}

// warn logs that a sensor fails.
func warn(s Signal, err error) {
	caddy.Log().Named("http.handlers.sliding_window").Warn("load cannot be measured by this signal; limits do not follow it", zap.String("signal", s.String()), zap.Error(err))
}

// New returns a zone with an id and options, until its Destruct. It goes on from the factor of a zone with the same id and
// other options, if there is one.
func (s *Sampler) New(id engine.ZoneID, o Options) *Controller {
	s.mu.Lock()
	defer s.mu.Unlock()
	z := newController(s, id, o)
	for _, other := range s.zones {
		if other.id == id && other.last.After(z.last) {
			z.inherit(other)
		}
	}
	s.zones = append(s.zones, z)
	return z
}

// Destruct implements caddy.Destructor.
func (z *Controller) Destruct() error {
	if z.latencies != nil {
		measuring.Add(-1)
	}
	z.sampler.mu.Lock()
	defer z.sampler.mu.Unlock()
	z.sampler.zones = slices.DeleteFunc(z.sampler.zones, func(other *Controller) bool { return other == z })
	return nil
}

// Start takes samples for the zone until Stop.
func (s *Sampler) Start(z *Controller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z.running++
	if s.running++; s.running == 1 && !s.Manual {
		s.stop, s.done = make(chan struct{}), make(chan struct{})
		go s.run(s.stop, s.done)
	}
}

// Stop undoes Start. With the last zone the goroutine ends.
func (s *Sampler) Stop(z *Controller) {
	s.mu.Lock()
	if z.running == 0 { // it was never started
		s.mu.Unlock()
		return
	}
	z.running--
	s.running--
	stop, done := s.stop, s.done
	last := s.running == 0 && stop != nil
	if last {
		s.stop, s.done = nil, nil
	}
	s.mu.Unlock()
	if last {
		close(stop)
		<-done
	}
}

func (s *Sampler) run(stop, done chan struct{}) {
	defer close(done)
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-ticker.C:
			s.Step(now)
		}
	}
}

// Step takes one sample for all zones that run.
func (s *Sampler) Step(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var used [signals]bool
	for _, z := range s.zones {
		for signal := range signals {
			used[signal] = used[signal] || z.running > 0 && z.options.Uses(signal)
		}
	}
	var readings [signals]reading
	for signal, sensor := range [Latency]Sensor{CPU: s.CPU, Memory: s.Memory} {
		if used[signal] {
			readings[signal] = s.read(Signal(signal), sensor)
		}
		s.latest[signal].Store(0)
		if r := readings[signal]; r.known {
			s.latest[signal].Store(math.Float64bits(max(r.value, math.SmallestNonzeroFloat64)))
		}
	}
	for _, z := range s.zones {
		if z.running == 0 {
			continue
		}
		own := readings
		if z.latencies != nil {
			own[Latency] = z.latencies.sample()
		}
		z.sample(now, own)
	}
}

// read returns the value of a sensor. One that fails, or panics, is not known.
func (s *Sampler) read(signal Signal, sensor Sensor) (r reading) {
	var err error
	defer func() {
		if p := recover(); p != nil {
			r, err = reading{}, fmt.Errorf("sensor: %v", p)
		}
		if err != nil && !errors.Is(err, ErrNotYet) && !s.warned[signal] && s.Warn != nil {
			s.warned[signal] = true
			s.Warn(signal, err)
		}
	}()
	value, err := sensor()
	if err == nil && (math.IsNaN(value) || value < 0) {
		err = fmt.Errorf("%v is not a share of 0 or more", value)
	}
	return reading{value, err == nil}
}

// Latest returns the last sample of CPU or Memory. It reports false if it is not known.
func (s *Sampler) Latest(signal Signal) (float64, bool) {
	b := s.latest[signal].Load()
	return math.Float64frombits(b), b != 0
}
