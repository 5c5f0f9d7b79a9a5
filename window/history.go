package window

import (
	"encoding/binary"
	"time"
)

// History is what is kept of a key in this process, in a layout of its algorithm's. It
// is bytes, so that a garbage collector has nothing to look through, and so that few of
// them lie together wherever a store wants them. An empty one is that of a new key.
//
// Times are milliseconds on the store's clock, from 0 to 2^48. A clock may step back.
// Units spent in the future of now count as spent just now. A denial that may write stores
// these units at now, so that a key does not stay locked for longer than one window.
type History []byte

// numbers reads a History, or a part of one, of 8 bytes each.
type numbers History

func (b *numbers) next() int64 {
	n := binary.LittleEndian.Uint64(*b)
	*b = (*b)[8:]
	return int64(n)
}

func (h History) appendNumbers(all ...int64) History {
	for _, n := range all {
		h = binary.LittleEndian.AppendUint64(h, uint64(n))
	}
	return h
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
