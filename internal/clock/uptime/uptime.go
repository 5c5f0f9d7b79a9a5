// Package uptime is a clock that neither steps nor has a date.
package uptime

import (
	"sync/atomic"
	"time"
)

// Now returns the time since the process began. It costs half of what time.Now
// does, which reads the time of day as well.
func Now() time.Duration { return time.Since(began) }

var began = time.Now()

// Rare limits how often something happens.
type Rare struct{ next atomic.Int64 } // in uptime

// Due reports whether interval has passed since it last returned true.
func (r *Rare) Due(interval time.Duration) bool {
	now, next := int64(Now()), r.next.Load()
	return now >= next && r.next.CompareAndSwap(next, now+int64(interval))
}
