package redis

import (
	"encoding/binary"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// plan is the list that tells the script what to decide on, in MessagePack; the
// header of lua/driver.lua says what it holds.
type plan struct {
	bytes       []byte
	items       uint32
	definitions []definition
}

// definition is what the charges of a zone have in common, unless their limits
// come from placeholders.
type definition struct {
	algorithm window.Algorithm
	packed    bool
	policies  []window.Policy
}

// planHead is the length of a list's head: how many items it has is known last.
const planHead = 5

// reset begins a list.
func (p *plan) reset() {
	p.bytes = append(p.bytes[:0], make([]byte, planHead)...)
	p.items, p.definitions = 0, p.definitions[:0]
}

// list returns the whole list.
func (p *plan) list() []byte {
	p.bytes[0] = 0xdd
	binary.BigEndian.PutUint32(p.bytes[1:planHead], p.items)
	return p.bytes
}

func (p *plan) int(n int64) {
	p.items++
	switch {
	case -1<<5 <= n && n < 1<<7:
		p.bytes = append(p.bytes, byte(n))
	case n >= 0 && n < 1<<32:
		p.bytes = binary.BigEndian.AppendUint32(append(p.bytes, 0xce), uint32(n))
	default:
		p.bytes = binary.BigEndian.AppendUint64(append(p.bytes, 0xd3), uint64(n))
	}
}

func (p *plan) bool(b bool) {
	if b {
		p.int(1)
	} else {
		p.int(0)
	}
}

func (p *plan) string(s string) {
	p.items++
	if len(s) < 1<<5 {
		p.bytes = append(p.bytes, 0xa0|byte(len(s)))
	} else {
		p.bytes = binary.BigEndian.AppendUint32(append(p.bytes, 0xdb), uint32(len(s)))
	}
	p.bytes = append(p.bytes, s...)
}

// charges writes those of a request under one of their names, the last or not.
func (p *plan) charges(n *naming, charges []window.Charge, last bool) {
	for i := range charges {
		c := &charges[i]
		p.definition(c, last && i == len(charges)-1)
		p.int(c.Cost)
		if c.Pack > 0 {
			field := n.packedField(c)
			p.string(string(field[:]))
		}
		if _, ok := c.Algorithm.(window.Stream); ok {
			p.int(int64(len(c.Fields)))
			for _, word := range c.Fields {
				p.string(word)
			}
		}
	}
}

// definition writes the number of the charge's definition, and the definition
// itself where it is new.
func (p *plan) definition(c *window.Charge, last bool) {
	const remembered = 8 // definitions that are looked at before one counts as new
	number := func(n int) {
		if !last {
			n = -n
		}
		p.int(int64(n))
	}
	for i := len(p.definitions) - 1; i >= max(0, len(p.definitions)-remembered); i-- {
		d := &p.definitions[i]
		if d.algorithm == c.Algorithm && d.packed == (c.Pack > 0) && slices.Equal(d.policies, c.Policies) {
			number(i + 1)
			return
		}
	}
	p.definitions = append(p.definitions, definition{c.Algorithm, c.Pack > 0, c.Policies})
	number(len(p.definitions))
	p.string(c.Algorithm.Name())
	p.bool(c.Pack > 0)
	options := c.Algorithm.Options()
	p.int(int64(len(options)))
	for _, o := range options {
		p.int(o)
	}
	p.int(int64(len(c.Policies)))
	for _, policy := range c.Policies {
		p.int(policy.Limit)
		p.int(policy.Window.Milliseconds())
	}
}
