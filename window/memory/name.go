package memory

import (
	"crypto/sha256"
	"hash/maphash"
	"math/bits"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// name names a counter.
type name struct {
	zone zoneName
	key  key
	hash uint32
}

// zoneName is what the counters of a zone have in common.
type zoneName struct{ algorithm, zone string }

// key is a key of any length in little room, beside the rest of its slot: the key
// itself if it is short, as addresses are, else so much of its SHA-256 that no two
// keys are ever the same.
type key struct {
	length uint8 // of a short key, or hashed
	bytes  [23]byte
}

const hashed = 255

// set writes s to an empty key.
func (k *key) set(s string) {
	if len(s) <= len(k.bytes) {
		k.length = uint8(copy(k.bytes[:], s))
		return
	}
	sum := sha256.Sum256([]byte(s))
	copy(k.bytes[:], sum[:])
	k.length = hashed
}

// name writes the name of the charge's counter to n, and returns its shard.
func (s *Store) name(n *name, c *window.Charge) (shard int) {
	hash := maphash.String(s.seed, c.Key) ^ bits.RotateLeft64(maphash.String(s.seed, c.Zone), 32)
	n.zone.algorithm, n.zone.zone, n.hash = c.Algorithm.Name(), c.Zone, uint32(hash)
	n.key.set(c.Key)
	return int(hash >> 58) // of shardCount
}

// overflow returns the name of the counter that keys share for which there is no
// room. Only slots that say so have it.
func (n *name) overflow() name { return name{zone: n.zone} }

// zoneID numbers a zone in one shard.
type zoneID uint32

// zones are the zones of a shard's slots, so that a slot need not hold the name.
type zones struct {
	ids  map[zoneName]zoneID
	list []zoneSlots
	free []zoneID
}

type zoneSlots struct {
	name     zoneName
	slots    int
	searched int64 // ms: when a search for a key to evict last found nothing; see pause
}

func (z *zones) is(id zoneID, name zoneName) bool { return z.list[id].name == name }

// join returns the number of a zone which gets one slot more.
func (z *zones) join(name zoneName) zoneID {
	id, ok := z.ids[name]
	if !ok {
		if z.ids == nil {
			z.ids = make(map[zoneName]zoneID)
		}
		if n := len(z.free); n > 0 {
			id, z.free = z.free[n-1], z.free[:n-1]
		} else {
			id = zoneID(len(z.list))
			z.list = append(z.list, zoneSlots{})
		}
		name.zone = strings.Clone(name.zone)
		z.ids[name], z.list[id].name = id, name
	}
	z.list[id].slots++
	return id
}

// leave takes a slot from the zone.
func (z *zones) leave(id zoneID) {
	zone := &z.list[id]
	if zone.slots--; zone.slots == 0 {
		delete(z.ids, zone.name)
		*zone = zoneSlots{}
		z.free = append(z.free, id)
	}
}
