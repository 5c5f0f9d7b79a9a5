package series

import (
	"encoding/binary"
	"errors"
)

// ErrMemory says that the keys themselves need more memory than the bound.
var ErrMemory = errors.New("the keys need more memory than the bound allows; raise --memory, or choose a key with fewer values")

const (
	grain    = 8         // bytes of the smallest block
	classes  = 6         // blocks of 8, 16, … 256 bytes
	slabSize = 256 << 10 // blocks are cut from slabs
	head     = 4         // bytes of a block that name the next one
)

// blocks are lists of bytes in blocks of several sizes. A block is named by its place in grains, and its class in the
// lowest three bits; 0 is no block.
type blocks struct {
	slabs [][]byte
	used  int // of the last slab
	free  [classes][]uint32
	most  int // slabs
	held  int64
}

// size of a block of a class.
func size(class uint32) int { return grain << class }

// bytes returns the memory of a block.
func (b *blocks) bytes(block uint32) []byte {
	at := int(block>>3) * grain
	slab := b.slabs[at/slabSize]
	return slab[at%slabSize:][:size(block&7)]
}

// alloc returns a block of a class, or of another one if there is no memory for it. It returns 0 if there is no memory at all.
func (b *blocks) alloc(class uint32) uint32 {
	block := b.take(class)
	if block == 0 {
		return 0
	}
	binary.LittleEndian.PutUint32(b.bytes(block), 0)
	b.held += int64(size(block & 7))
	return block
}

// take finds a block: a free one, a half of a larger one, a new one, or a smaller one.
func (b *blocks) take(class uint32) uint32 {
	for c := class; c < classes; c++ {
		if block := b.pop(c); block != 0 {
			for ; c > class; c-- {
				half := block&^7 + uint32(size(c-1)/grain)<<3 // #nosec G115 -- within a block
				b.free[c-1] = append(b.free[c-1], half|(c-1))
				block = block&^7 | (c - 1)
			}
			return block
		}
	}
	n := size(class)
	if len(b.slabs) == 0 || b.used+n > slabSize {
		if len(b.slabs) >= b.most {
			for c := class; c > 0; c-- {
				if block := b.pop(c - 1); block != 0 {
					return block
				}
			}
			return 0
		}
		b.slabs = append(b.slabs, make([]byte, slabSize))
		b.used = 0
		if len(b.slabs) == 1 {
			b.used = size(classes - 1) // 0 is no block
		}
	}
	place := (len(b.slabs)-1)*slabSize + b.used
	b.used += n
	return uint32(place/grain)<<3 | class // #nosec G115 -- most keeps places below 2^29 grains
}

// pop returns a free block of a class, 0 without one.
func (b *blocks) pop(class uint32) uint32 {
	list := b.free[class]
	if len(list) == 0 {
		return 0
	}
	b.free[class] = list[:len(list)-1]
	return list[len(list)-1]
}

// release frees a list of blocks.
func (b *blocks) release(block uint32) {
	for block != 0 {
		next := binary.LittleEndian.Uint32(b.bytes(block))
		b.free[block&7] = append(b.free[block&7], block)
		b.held -= int64(size(block & 7))
		block = next
	}
}

// write appends data to the list of e. It reports false, and has written nothing, if there is no memory.
func (b *blocks) write(e *entry, data []byte) bool {
	first, last, fill := e.first, e.last, e.fill()
	for from := data; len(from) > 0; {
		if last == 0 || fill == size(last&7) {
			class := uint32(0)
			if last != 0 {
				class = min(classes-1, last&7+1)
			}
			block := b.alloc(class)
			if block == 0 {
				b.undo(e)
				return false
			}
			if last == 0 {
				first = block
			} else {
				binary.LittleEndian.PutUint32(b.bytes(last), block)
			}
			last, fill = block, head
		}
		n := copy(b.bytes(last)[fill:], from)
		fill += n
		from = from[n:]
	}
	e.first, e.last = first, last
	e.setFill(fill)
	return true
}

// undo frees the blocks that were linked to the list of e, whose fields do not have them yet.
func (b *blocks) undo(e *entry) {
	if e.last == 0 {
		return
	}
	next := b.bytes(e.last)[:head]
	b.release(binary.LittleEndian.Uint32(next))
	binary.LittleEndian.PutUint32(next, 0)
}

// read appends the bytes of the list of e to buf.
func (b *blocks) read(e *entry, buf []byte) []byte {
	for block := e.first; block != 0; {
		bytes := b.bytes(block)
		end := len(bytes)
		if block == e.last {
			end = e.fill()
		}
		buf = append(buf, bytes[head:end]...)
		block = binary.LittleEndian.Uint32(bytes)
	}
	return buf
}
