// Package load turns the load of this process into factors by which limits are scaled.
//
// A [Sampler] reads sensors every half second, in one goroutine, while a [Controller] runs. Each Controller
// has a factor of its own, made from the signals that its [Options] name:
//
//   - Down: the lower of a signal's last two samples acts at once, so that one spike does nothing.
//   - Up: a moving average acts, and the factor rises no faster than its whole way in Recover.
//
// [Limits] are those of a zone at its factor, and [Serve] measures the time until answers begin.
package load
