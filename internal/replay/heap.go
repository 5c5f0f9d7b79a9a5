package replay

import "runtime/debug"

// seldom is how much garbage may come before it is collected, in percent of what is in use: a command may take more memory
// than a server, and ends sooner.
const seldom = 400

// holdHeap makes garbage collections rare, and often enough to keep this process within memory, as far as what is in use
// allows. It returns what ends that.
func holdHeap(memory int64) (end func()) {
	percent, limit := debug.SetGCPercent(seldom), debug.SetMemoryLimit(-1)
	if memory > 0 && memory < limit {
		debug.SetMemoryLimit(memory)
	}
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}
