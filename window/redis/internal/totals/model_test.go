package totals

import "maps"

// server is lua/concurrent.lua in Go: counters by key.
type server map[string]*counter

type counter struct {
	fields  map[string]field // by process
	expires int64
}

type field struct{ counted, exact, given, back, at, lease, since int64 }

// view is what the script reads.
type view struct {
	field
	known           bool // the process has a field
	others, expires int64
	silent, ahead   []string
	free            int64
}

func (s server) read(now int64, key, process string, m Message) (own view) {
	own.field = field{given: m.Given, back: m.Back, since: now}
	if s[key] == nil {
		return own
	}
	for name, f := range s[key].fields {
		if f.at > now {
			f.at = now
			own.ahead = append(own.ahead, name)
		}
		switch {
		case f.at+f.lease <= now && name == process:
		case f.at+f.lease <= now:
			own.silent, own.free = append(own.silent, name), own.free+f.given-f.back
		case name == process:
			own.known, own.counted, own.exact, own.since = true, f.counted, f.exact, f.since
			if m.Number <= f.exact {
				own.given, own.back = f.given, f.back
			} else {
				own.given, own.back = max(m.Given, f.given), max(m.Back, f.back)
			}
		default:
			own.others, own.expires = own.others+f.given-f.back, max(own.expires, f.at+f.lease)
		}
	}
	return own
}

func (s server) write(now int64, key, process string, lease int64, own view) {
	k := s[key]
	if k == nil {
		k = &counter{fields: map[string]field{}}
		s[key] = k
	}
	own.at, own.lease = now, lease
	k.fields[process] = own.field
	if !own.known || own.given != own.back {
		k.expires = max(own.expires, now+lease) + lease
	}
}

// take returns whether units pass, and how many are left.
func (s server) take(now int64, key, process string, m Message, cost, limit, lease int64) (allowed bool, remaining int64) {
	own := s.read(now, key, process, m)
	left := limit - own.others - own.given + own.back
	givenUp := own.known && m.Number < own.exact
	if allowed = cost == 0 || cost <= left && !givenUp; !allowed || cost == 0 {
		return allowed, max(0, left)
	}
	if own.given == own.back {
		own.since = now
	}
	own.counted, own.given = max(own.counted, m.Number), own.given+cost
	s.write(now, key, process, lease, own)
	return true, left - cost
}

// total returns the reply to a total.
func (s server) total(now int64, key, process string, m Message, age, heard, lease int64) int64 {
	own := s.read(now, key, process, m)
	before := own.counted
	own.counted = max(before, m.Number)
	switch {
	case age < 0:
		age = -1 - age
	case before > m.Number:
		s.write(now, key, process, lease, own)
		return Stale
	default:
		own.exact, own.given, own.back = m.Number, m.Given, m.Back
	}
	own.since = now - age
	if k := s[key]; k != nil {
		for _, name := range own.silent {
			delete(k.fields, name)
		}
		for _, name := range own.ahead {
			f := k.fields[name]
			f.at = now
			k.fields[name] = f
		}
	}
	s.write(now, key, process, lease, own)
	if heard > before {
		return 2*own.free + 1
	}
	return 2 * own.free
}

// held returns what the script counts of a process now.
func (s server) held(now int64, key, process string) int64 {
	k := s[key]
	if k == nil {
		return 0
	}
	f, ok := k.fields[process]
	if !ok || min(f.at, now)+f.lease <= now {
		return 0
	}
	return f.given - f.back
}

func (s server) clone() server {
	c := server{}
	for key, k := range s {
		c[key] = &counter{maps.Clone(k.fields), k.expires}
	}
	return c
}
