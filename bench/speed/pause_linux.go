package main

import (
	"syscall"
	"time"
)

// pause waits. It is more exact than time.Sleep, which on an idle Linux rounds up to a
// whole millisecond.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal ends it early; vegeta then sends a request too soon
}
