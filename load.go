package slidingwindow

import (
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/load"
)

// Load scales limits by how loaded this Caddy is. One of cpu, memory and latency is required. Each
// signal has a factor: 1 up to its lo, floor from its hi on, and a straight line between them.
type Load struct {
	// The share of the CPU time that this process may use, as its control group (version 2) says, or
	// of the host's if that sets no limit. Default: the CPU makes no difference.
	CPU *LoadRange `json:"cpu,omitempty"`

	// The share of the memory that this process may use: of GOMEMLIMIT or its control group, whichever
	// is nearer, or of the host's if there is no limit. Garbage and file caches do not count.
	// Default: memory makes no difference.
	Memory *LoadRange `json:"memory,omitempty"`

	// The time from the decision on a request until the status of its answer is known, of which nine
	// tenths of the last 50 or more, of 5 s at most, are not slower: durations from `1ms` to `1m`. What
	// limiters waited and the time that a client takes to send its body do not count. An answer with
	// status 5xx counts as hi. What one client alone sees does not count while there are others; a client is a key of
	// the zone with the lowest limit that has a placeholder in its key and no latency, or else an address.
	// Default: answer times make no difference.
	Latency *LoadRange `json:"latency,omitempty"`

	// The smallest factor, above `0%`. Default: `30%`.
	Floor Value `json:"floor,omitempty"`

	// The largest factor, up to `1000%`. Above `100%` limits grow while there is little load: the factor
	// of a signal rises from 1 at half of its lo to the ceiling at 0. Default: `100%`.
	Ceiling Value `json:"ceiling,omitempty"`

	// The time in which the factor rises from the floor to 1 at the earliest, from `1s` to `1h`.
	// It falls at once. Default: `1m`.
	Recover Value `json:"recover,omitempty"`
}

// LoadRange is where a signal acts.
type LoadRange struct {
	// The value up to which the limits hold as they are.
	Lo Value `json:"lo"`

	// The value from which the factor is the floor.
	Hi Value `json:"hi"`
}

// Defaults of load.
const (
	defaultFloor   = 0.3
	defaultCeiling = 1
	defaultRecover = time.Minute
)

// compile returns l as requests use it, or what is wrong with it by itself.
func (l *Load) compile() (*load.Options, error) {
	o := &load.Options{Floor: defaultFloor, Ceiling: defaultCeiling, Recover: defaultRecover}
	for _, signal := range []struct {
		of      load.Signal
		r       *LoadRange
		read    func(Value) (float64, error)
		most    float64
		example string
	}{
		{load.CPU, l.CPU, Value.percent, 1, "cpu 70% 95%"},
		{load.Memory, l.Memory, Value.percent, 1, "memory 80% 95%"},
		{load.Latency, l.Latency, Value.seconds, 60, "latency 200ms 1s"},
	} {
		if signal.r == nil {
			continue
		}
		r, err := signal.r.compile(signal.read)
		if err != nil {
			return nil, fmt.Errorf("%s: %w, as in %s", signal.of, err, signal.example)
		}
		if r.Hi > signal.most {
			return nil, fmt.Errorf("%s: %s is above the most, which is %s; write a lower one, as in %s", signal.of, signal.r.Hi, map[bool]string{true: "100%", false: "1m"}[signal.most == 1], signal.example)
		}
		o.Ranges[signal.of] = r
	}
	if o.Ranges == (load.Options{}).Ranges {
		return nil, errors.New("nothing says what the load is; write cpu 70% 95%, memory 80% 95% or latency 200ms 1s")
	}
	if err := l.compileBounds(o); err != nil {
		return nil, err
	}
	return o, nil
}

// compileBounds reads floor, ceiling and recover.
func (l *Load) compileBounds(o *load.Options) (err error) {
	if l.Floor != "" {
		if o.Floor, err = l.Floor.percent(); err != nil {
			return fmt.Errorf("floor %w, as in floor 30%%", err)
		}
		if o.Floor <= 0 || o.Floor > 1 {
			return fmt.Errorf("floor %s: must be above 0%% and at most 100%%", l.Floor)
		}
	}
	if l.Ceiling != "" {
		if o.Ceiling, err = l.Ceiling.percent(); err != nil {
			return fmt.Errorf("ceiling %w, as in ceiling 120%%", err)
		}
		if o.Ceiling < 1 || o.Ceiling > 10 {
			return fmt.Errorf("ceiling %s: must be from 100%% to 1000%%", l.Ceiling)
		}
	}
	if o.Floor == 1 && o.Ceiling == 1 {
		return errors.New("floor 100%: limits would not change; write a lower floor")
	}
	if l.Recover != "" {
		if o.Recover, err = l.Recover.duration(); err != nil {
			return fmt.Errorf("recover %w", err)
		}
		if o.Recover < time.Second || o.Recover > time.Hour {
			return fmt.Errorf("recover %s: must be from 1s to 1h", l.Recover)
		}
	}
	return nil
}

// compile returns the range as the sampler takes it.
func (r *LoadRange) compile(read func(Value) (float64, error)) (load.Range, error) {
	lo, err := read(r.Lo)
	if err != nil {
		return load.Range{}, fmt.Errorf("lo %w", err)
	}
	hi, err := read(r.Hi)
	if err != nil {
		return load.Range{}, fmt.Errorf("hi %w", err)
	}
	if lo <= 0 || lo >= hi {
		return load.Range{}, fmt.Errorf("%s %s: lo must be above 0 and below hi; write lo first", r.Lo, r.Hi)
	}
	return load.Range{Lo: lo, Hi: hi}, nil
}

// plain returns l with values written in one way and without those that are the default.
func (l *Load) plain() *Load {
	p := *l
	for _, r := range []**LoadRange{&p.CPU, &p.Memory} {
		if *r != nil {
			*r = &LoadRange{(*r).Lo.plainPercent(), (*r).Hi.plainPercent()}
		}
	}
	if p.Latency != nil {
		p.Latency = &LoadRange{p.Latency.Lo.canonicalDuration(), p.Latency.Hi.canonicalDuration()}
	}
	p.Floor = unless(p.Floor.plainPercent(), "30%")
	p.Ceiling = unless(p.Ceiling.plainPercent(), "100%")
	p.Recover = unless(p.Recover.canonicalDuration(), canonicalDuration(defaultRecover))
	return &p
}
