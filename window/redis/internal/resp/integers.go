package resp

import "encoding/binary"

// Integers reads whole numbers of 0 or more in MessagePack, one after the other. It reports whether there is nothing else.
func Integers(text string) (all []int64, ok bool) {
	for len(text) > 0 {
		kind, size := text[0], 0
		switch {
		case kind < 0x80:
			all, text = append(all, int64(kind)), text[1:]
			continue
		case kind >= 0xcc && kind <= 0xcf: // of 1, 2, 4 and 8 bytes
			size = 1 << (kind - 0xcc)
		case kind >= 0xd0 && kind <= 0xd3: // with a sign
			size = 1 << (kind - 0xd0)
		default:
			return nil, false
		}
		if len(text) < 1+size {
			return nil, false
		}
		var b [8]byte
		copy(b[8-size:], text[1:1+size])
		n := int64(binary.BigEndian.Uint64(b[:]))
		if n < 0 || kind >= 0xd0 && text[1] >= 0x80 { // its sign
			return nil, false
		}
		all, text = append(all, n), text[1+size:]
	}
	return all, true
}
