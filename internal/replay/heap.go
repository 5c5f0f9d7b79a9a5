package replay

import "runtime/debug"

// holdHeap makes garbage collections frequent enough to keep this process within memory, as far as what is in use
// allows. It returns what ends that.
func holdHeap(memory int64) (end func()) {
	before := debug.SetMemoryLimit(-1)
	if memory <= 0 || memory >= before {
		return func() {}
	}
	debug.SetMemoryLimit(memory - memory/16) // the rest is what the system counts beside the heap
	return func() { debug.SetMemoryLimit(before) }
}
