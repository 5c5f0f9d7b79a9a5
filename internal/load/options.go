package load

import "time"

// Signal is something that tells how loaded the process is.
type Signal int

// The signals.
const (
	CPU     Signal = iota // share of the CPU time that the process may use
	Memory                // share of the memory that the process may use
	Latency               // seconds until an answer begins: the 90th percentile
	signals
)

var signalNames = [signals]string{"cpu", "memory", "latency"}

// String returns the word for the signal in configuration.
func (s Signal) String() string { return signalNames[s] }

// Range is where a signal acts: not up to Lo, fully from Hi on. The zero value is of a signal
// that is not used.
type Range struct{ Lo, Hi float64 }

// Used reports whether the signal is used.
func (r Range) Used() bool { return r.Hi > 0 }

// Options say how a zone follows the load. They are comparable.
type Options struct {
	Ranges [signals]Range // by Signal; 0 < Lo < Hi
	// The least and the largest factor; 0 < Floor <= 1 <= Ceiling.
	Floor, Ceiling float64
	// The time in which the factor rises from Floor to 1 at the earliest.
	Recover time.Duration
}

// Uses reports whether a signal is used.
func (o *Options) Uses(s Signal) bool { return o.Ranges[s].Used() }

// of returns the factor of a signal with the value x: Floor from Hi on, 1 between half of Lo and
// Lo, and Ceiling at 0, with straight lines between them.
func (o *Options) of(s Signal, x float64) float64 {
	r := o.Ranges[s]
	switch {
	case x >= r.Hi:
		return o.Floor
	case x > r.Lo:
		return 1 - (1-o.Floor)*(x-r.Lo)/(r.Hi-r.Lo)
	case x < r.Lo/2:
		return o.Ceiling - (o.Ceiling-1)*x/(r.Lo/2)
	}
	return 1
}

func (o *Options) clamp(factor float64) float64 { return min(max(factor, o.Floor), o.Ceiling) }

// rise returns how much the factor rises at most in a time.
func (o *Options) rise(d time.Duration) float64 {
	way := 1 - o.Floor
	if way == 0 {
		way = o.Ceiling - 1
	}
	return way * d.Seconds() / o.Recover.Seconds()
}
