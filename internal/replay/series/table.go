package series

import (
	"encoding/binary"
	"hash/maphash"
)

// table finds keys: an open hash table of positions in entries. It holds no pointers, so that the garbage collector
// has nothing to look at in millions of keys.
type table struct {
	seed    maphash.Seed
	slots   []uint32 // position in entries + 1; 0: empty
	entries [][]entry
	n       int
	texts   [][]byte // keys: a length, then bytes
	used    int      // of the last of texts
}

const (
	entriesBits = 12
	textsBits   = 20
)

// newTable returns an empty table.
func newTable() *table {
	return &table{seed: maphash.MakeSeed(), slots: make([]uint32, 1<<10)}
}

// at returns the i-th entry.
func (t *table) at(i int) *entry { return &t.entries[i>>entriesBits][i&(1<<entriesBits-1)] }

// text returns the key of e.
func (t *table) text(e *entry) []byte {
	b := t.texts[e.text>>textsBits][e.text&(1<<textsBits-1):]
	n, skip := binary.Uvarint(b)
	return b[skip : skip+int(n)] // #nosec G115 -- written by add
}

// find returns the entry of a key, which it adds if it is new.
func (t *table) find(key string) (e *entry, isNew bool) {
	hash := maphash.String(t.seed, key)
	mask := uint64(len(t.slots) - 1)
	i := hash & mask
	for ; t.slots[i] != 0; i = (i + 1) & mask {
		if e = t.at(int(t.slots[i] - 1)); e.hash == uint32(hash>>32) && string(t.text(e)) == key { // #nosec G115 -- half of it
			return e, false
		}
	}
	if t.n>>entriesBits == len(t.entries) {
		t.entries = append(t.entries, make([]entry, 1<<entriesBits))
	}
	e = t.at(t.n)
	t.n++
	*e = entry{hash: uint32(hash >> 32), text: t.keep(key)} // #nosec G115 -- half of it
	t.slots[i] = uint32(t.n)                                // #nosec G115 -- fewer than 2^32 keys
	if t.n*4 > len(t.slots)*3 {
		t.grow()
	}
	return e, true
}

// keep copies a key to texts. A key that is longer than a part of texts is cut.
func (t *table) keep(key string) uint32 {
	if most := 1<<textsBits - binary.MaxVarintLen32; len(key) > most {
		key = key[:most]
	}
	if len(t.texts) == 0 || t.used+len(key)+binary.MaxVarintLen32 > 1<<textsBits {
		t.texts = append(t.texts, make([]byte, 1<<textsBits))
		t.used = 0
	}
	b := t.texts[len(t.texts)-1]
	place := uint32((len(t.texts)-1)<<textsBits + t.used) // #nosec G115 -- 4 GiB of keys are above any bound
	t.used += binary.PutUvarint(b[t.used:], uint64(len(key)))
	t.used += copy(b[t.used:], key)
	return place
}

// grow doubles the slots. The upper half of a hash is kept in its entry, the lower is made anew.
func (t *table) grow() {
	t.slots = make([]uint32, 2*len(t.slots))
	mask := uint64(len(t.slots) - 1)
	for n := range t.n {
		i := maphash.Bytes(t.seed, t.text(t.at(n))) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = uint32(n + 1) // #nosec G115 -- fewer than 2^32 keys
	}
}

// bytes returns how much memory t takes.
func (t *table) bytes() int64 {
	return int64(4*len(t.slots)) + int64(len(t.entries)*entrySize)<<entriesBits + int64(len(t.texts))<<textsBits
}
