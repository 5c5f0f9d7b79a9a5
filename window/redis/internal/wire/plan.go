package wire

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/totals"
)

// plan is the list that tells the script what to decide on, in MessagePack; the
// header of lua/driver.lua says what it holds.
type plan struct {
	known                 []definition
	definitions, requests items
	group                 int      // index of the number of requests in the last group of units, if there is one
	unit                  int64    // the definition of that group
	keys                  []uint32 // hashes of the keys of that group, for none to come twice
	writer                *Writer
	op                    Op
	place                 int           // the place of the request that is written
	counts                bool          // its takes of units that are held are to be answered
	sent                  []totals.Sent // these takes
}

var keySeed = maphash.MakeSeed()

// definition is what the charges of a zone have in common, unless their limits
// come from placeholders.
type definition struct {
	algorithm window.Algorithm
	packed    bool
	longest   int64 // ms
	policies  []window.Policy
}

// reset begins a list.
func (p *plan) reset() {
	p.known = p.known[:0]
	p.definitions.reset()
	p.requests.reset()
	p.unit = 0
	p.sent = p.sent[:0]
}

// append appends the whole list to dst.
func (p *plan) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, 0xdd), 1+p.definitions.n+p.requests.n)
	dst = appendInt(dst, int64(len(p.known)))
	dst = append(dst, p.definitions.bytes...)
	return append(dst, p.requests.bytes...)
}

// items are a part of a list.
type items struct {
	bytes []byte
	n     uint32
}

func (i *items) reset() { i.bytes, i.n = i.bytes[:0], 0 }

func (i *items) int(n int64) {
	i.n++
	i.bytes = appendInt(i.bytes, n)
}

func appendInt(dst []byte, n int64) []byte {
	switch {
	case -1<<5 <= n && n < 1<<7:
		return append(dst, byte(n))
	case n >= 0 && n < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(n))
	}
}

func (i *items) bool(b bool) {
	if b {
		i.int(1)
	} else {
		i.int(0)
	}
}

func (i *items) string(s string) {
	i.n++
	if len(s) < 1<<5 {
		i.bytes = append(i.bytes, 0xa0|byte(len(s)))
	} else {
		i.bytes = binary.BigEndian.AppendUint32(append(i.bytes, 0xdb), uint32(len(s)))
	}
	i.bytes = append(i.bytes, s...)
}

// request writes a request, of which every charge counts under each of the names. One
// for a unit joins the group before it, if it can. key is the name of its first counter.
func (p *plan) request(namings []naming.Naming, charges []window.Charge, key []byte) {
	if f := window.FactsOf(charges[0].Algorithm); len(namings) > 1 || len(charges) > 1 || charges[0].Cost != 1 || f.Notes || f.Held {
		p.apart(namings, charges)
		return
	}
	const most = 1<<7 - 1 // requests, for their number to be one byte
	c := &charges[0]
	unit := p.definition(c)
	hash := uint32(maphash.Bytes(keySeed, key))
	if unit == p.unit && p.requests.bytes[p.group] < most && (c.Pack > 0 || !slices.Contains(p.keys, hash)) {
		p.requests.bytes[p.group]++
	} else {
		p.group, p.unit = len(p.requests.bytes), unit
		p.requests.int(1)
		p.requests.int(unit)
		p.keys = p.keys[:0]
	}
	p.keys = append(p.keys, hash)
	p.field(&namings[0], c)
}

// apart writes a request that is in no group.
func (p *plan) apart(namings []naming.Naming, charges []window.Charge) {
	p.unit = 0
	p.requests.int(-int64(len(namings) * len(charges)))
	for k := range namings {
		for i := range charges {
			c := &charges[i]
			p.requests.int(p.definition(c))
			p.requests.int(double(c.Cost))
			p.field(&namings[k], c)
			switch f := window.FactsOf(c.Algorithm); {
			case f.Notes:
				p.requests.int(int64(len(c.Fields)))
				for _, word := range c.Fields {
					p.requests.string(word)
				}
			case f.Held:
				p.message(c, k == 0)
			}
		}
	}
}

// message writes what this process holds, and in what order it says so. It says of a total that replaces another one how
// old it is, and what the server must have counted. Units are counted as sent once, under the first name.
func (p *plan) message(c *window.Charge, first bool) {
	var m totals.Message
	var more []int64
	switch {
	case p.op.settles():
		var age, heard int64
		m, age, heard = p.writer.Totals.Total(c)
		more = []int64{age, heard}
	case p.op == Take && p.counts && first && c.Cost > 0:
		var sent totals.Sent
		m, sent = p.writer.Totals.Take(p.place, c)
		p.sent = append(p.sent, sent)
	default:
		m = p.writer.Totals.Look(c)
	}
	for _, n := range append([]int64{m.Number, m.Given, m.Back}, more...) {
		p.requests.int(n)
	}
}

// double returns a cost that compares with every limit in Lua's doubles as c does in
// integers. 2^53 + 1 is above every limit, but as a double it would be 2^53.
func double(c int64) int64 {
	if c == window.MaxProduct+1 {
		return c + 1
	}
	return c
}

// field writes where in its hash a counter is, if it is packed.
func (p *plan) field(n *naming.Naming, c *window.Charge) {
	if c.Pack > 0 {
		field := n.PackedField(c)
		p.requests.string(string(field[:]))
	}
}

// definition returns the number of the charge's definition, which it writes where it is new.
func (p *plan) definition(c *window.Charge) int64 {
	const remembered = 8 // definitions that are looked at before one counts as new
	longest := c.Longest()
	for i := len(p.known) - 1; i >= max(0, len(p.known)-remembered); i-- {
		d := &p.known[i]
		if d.algorithm == c.Algorithm && d.packed == (c.Pack > 0) && d.longest == longest && slices.Equal(d.policies, c.Policies) {
			return int64(i + 1)
		}
	}
	p.known = append(p.known, definition{c.Algorithm, c.Pack > 0, longest, c.Policies})
	options, named := window.OptionsOf(c.Algorithm), window.FactsOf(c.Algorithm).Held
	d := &p.definitions
	items := int64(4 + 2*len(c.Policies) + len(options))
	if named {
		items++
	}
	d.int(items)
	d.string(c.Algorithm.Name())
	d.bool(c.Pack > 0)
	d.int(longest)
	d.int(int64(len(c.Policies)))
	for _, policy := range c.Policies {
		d.int(policy.Limit)
		d.int(policy.Window.Milliseconds())
	}
	for _, o := range options {
		d.int(o)
	}
	if named {
		d.string(p.writer.Name)
	}
	return int64(len(p.known))
}
