//go:build race

package memory

// raced says whether the race detector is on, which makes everything slow.
const raced = true
