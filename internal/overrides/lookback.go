package overrides

import (
	"time"
)

// Window returns the longest window of the record's limits; 0 without limits.
func (r *Record) Window() (longest time.Duration) {
	policies, _ := r.policies() // what does not fit is not applied
	for _, p := range policies {
		longest = max(longest, p.Window)
	}
	return longest
}

// Forgotten returns when the record matters no more to how far back its zone looks: one window after its end, in
// Unix ms; 0 for never.
func (r *Record) Forgotten() int64 {
	if r.Until == nil {
		return 0
	}
	return r.Until.Add(r.Window()).UnixMilli()
}

// looking is what a rule says of how far back its keys look.
type looking struct {
	window time.Duration
	till   int64 // Unix ms; 0: for good
}

// merge makes l cover two rules of one selector.
func (l *looking) merge(o looking) {
	l.window = max(l.window, o.window)
	if l.till == 0 || o.till == 0 {
		l.till = 0
	} else {
		l.till = max(l.till, o.till)
	}
}

// at returns how far back l looks at a time.
func (l *looking) at(now int64) time.Duration {
	if l.till != 0 && now >= l.till {
		return 0
	}
	return l.window
}

// over returns the one of two rules of one selector that decides, which looks as far back as both.
func (r *Rule) over(o *Rule) *Rule {
	if o == nil {
		return r
	}
	if !r.newer(o) {
		r, o = o, r
	}
	r.looks.merge(o.looks)
	return r
}

// LookBack returns the longest window of limits that a key has under any record, or had until no more than
// that window ago: the first record that ends leaves the key to another one, and an operator may set one
// again. A nil set looks back on nothing.
func (s *Set) LookBack(key string) (longest time.Duration) {
	if s == nil {
		return 0
	}
	now := s.time.Milli()
	if r := s.exact[key]; r != nil {
		longest = r.looks.at(now)
	}
	for n := 0; s.hashed != nil; n++ {
		r, ok := s.hashedWith(key, n)
		if !ok {
			break
		}
		if r != nil {
			longest = max(longest, r.looks.at(now))
		}
	}
	if n, a := s.networksOf(key); n != nil {
		for r := range n.with(a) {
			longest = max(longest, r.looks.at(now))
		}
	}
	longest = max(longest, s.patterns.prefixes.lookBack(key, now), s.patterns.suffixes.lookBack(key, now))
	if s.all != nil {
		longest = max(longest, s.all.looks.at(now))
	}
	return longest
}

func (l *literals) lookBack(key string, now int64) (longest time.Duration) {
	last, shared := l.last(key)
	for at := last; at >= 0; at = l.nodes[at].parent {
		if node := &l.nodes[at]; len(node.text) <= shared {
			longest = max(longest, node.rule.looks.at(now))
		}
	}
	return longest
}
