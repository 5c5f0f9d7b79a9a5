package window

// Log is the exact sliding-window log like Zset, packed: two to four bytes per
// event, and one to four for a cost from 2 to 100 million. In Redis it is a chunk of
// records, or a list of them; see logchunk.lua and logring.lua for the layout, and recordchunks.go for what
// differs here.
//
// The promise is that of Zset. When the clock steps back, units that lie in the
// future are stored as spent just now by any charge that is taken.
type Log struct{ ofRecords }

// Name implements Algorithm.
func (Log) Name() string { return "log" }
