package banstest

import (
	"context"
	"math/big"
	"slices"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
)

// Model is a bans.Store that is written for reading. It looks at every record in every call, reckons in whole numbers, and
// shares no code with the stores under test.
type Model struct {
	Now     func() int64
	Most    int // records
	Records map[string]bans.Record
	last    int64
}

// NewModel returns an empty model that keeps a number of records.
func NewModel(most int, now func() int64) *Model {
	return &Model{Now: now, Most: most, Records: make(map[string]bans.Record)}
}

// ExchangeBans implements bans.Store.
func (m *Model) ExchangeBans(_ context.Context, ask bans.Ask) (a bans.Answer, err error) {
	a.Now = m.Now()
	known := ask.Known
	if known > 0 && m.Records[ask.Witness].Change < known {
		known, a.Lost = 0, true
	}
	for _, w := range ask.Writes {
		a.Done = append(a.Done, m.write(w, a.Now))
	}
	if len(ask.Writes) > 0 {
		m.forget(1_000, func(r bans.Record) bool { return r.Forget <= a.Now })
		m.forget(min(1_000, len(m.Records)-m.Most), func(bans.Record) bool { return true })
	}
	for member, r := range m.Records {
		if r.Change > known {
			r.Strikes = slices.Clone(r.Strikes)
			a.Changes = append(a.Changes, bans.Change{Member: member, Record: r})
		}
	}
	slices.SortFunc(a.Changes, func(x, y bans.Change) int { return int(x.Record.Change - y.Record.Change) })
	if len(a.Changes) > 1_000 {
		a.Changes, a.More = a.Changes[:1_000], true
	}
	a.Change = known
	for _, c := range a.Changes {
		a.Change = c.Record.Change
	}
	return a, nil
}

// forget takes out up to n of the records that are over: those first that are forgotten first.
func (m *Model) forget(n int, isOver func(bans.Record) bool) {
	var members []string
	for member, r := range m.Records {
		if isOver(r) {
			members = append(members, member)
		}
	}
	slices.SortFunc(members, func(x, y string) int {
		if d := m.Records[x].Forget - m.Records[y].Forget; d != 0 {
			return int(d)
		}
		return strings.Compare(x, y)
	})
	for i, member := range members {
		if i < n {
			delete(m.Records, member)
		}
	}
}

func (m *Model) write(w bans.Write, now int64) (done bool) {
	r, isThere := m.Records[w.Member]
	if former, wasThere := m.Records[w.Former]; !isThere && wasThere && w.Former != "" {
		delete(m.Records, w.Former)
		m.last++
		r, isThere = former, true
		r.Change = m.last
	}
	if !isThere {
		if w.Op == bans.Lift {
			return false
		}
		r = bans.Record{About: w.About}
	}
	switch w.Op {
	case bans.Strike:
		done = strike(&r, now, w.Draw, w.Rule)
	case bans.Set:
		r.Began, r.Until, r.Strikes, r.About, done = now, now+w.For, nil, w.About, true
		r.Forget = max(r.Forget, r.Until+w.Keep)
	case bans.Lift:
		if done = r.Until > now; done {
			r.Until, r.Lifted, r.Strikes = now, now, nil
			if r.Level > 0 {
				r.Level--
			}
		}
	case bans.Merge:
		before := r.Until
		merge(&r, w.Record)
		done = r.Until != before
	}
	if done {
		m.last++
		r.Change = m.last
	}
	m.Records[w.Member] = r
	return done
}

func strike(r *bans.Record, now, draw int64, rule bans.Rule) bool {
	length := r.Until - r.Began
	if now >= r.Began-length && now < r.Until {
		return false // banned, by a clock that is at most a length late
	}
	if r.Lifted > 0 && r.Lifted <= now && now < r.Lifted+rule.Pardon {
		return false
	}
	if r.Last > 0 && r.Last <= now && now < r.Last+1_000 {
		return false
	}
	// Every ban is longer than the one before, until one is the longest.
	lengths := []int64{rule.Length}
	for rule.Factor > 1_000 && lengths[len(lengths)-1] < rule.Max {
		next := new(big.Int).Mul(big.NewInt(lengths[len(lengths)-1]), big.NewInt(rule.Factor))
		if next.Div(next, big.NewInt(1_000)); next.Cmp(big.NewInt(rule.Max)) > 0 {
			next.SetInt64(rule.Max)
		}
		lengths = append(lengths, next.Int64())
	}
	highest := int64(len(lengths) - 1)
	for at := max(r.Until, r.Last) + rule.Halve; at <= now && r.Level > 0; at += rule.Halve {
		r.Level--
	}
	r.Level, r.Last = min(r.Level, highest), now

	var strikes []int64
	for _, at := range append(r.Strikes, now) {
		if now-rule.In < at && at <= now {
			strikes = append(strikes, at)
		}
	}
	begins := int64(len(strikes)) >= rule.After
	keep := rule.In
	if begins {
		length := lengths[r.Level]
		r.Began, r.Until, strikes = now, now+length+length*rule.Spread*draw/1_000_000, nil
		r.Level = min(r.Level+1, highest)
		keep = max(keep, rule.Pardon)
	}
	r.Strikes = strikes
	r.Forget = max(r.Until, now) + max(keep, r.Level*rule.Halve)
	return begins
}

func merge(r *bans.Record, o bans.Record) {
	// The ban that ends last, unless it was lifted after it began.
	if o.Until > r.Until && o.Began >= r.Lifted {
		r.Began, r.Until = o.Began, o.Until
	}
	if o.Lifted > r.Lifted && r.Began < o.Lifted && r.Until > o.Lifted {
		r.Until = o.Lifted
	}
	r.Lifted, r.Level, r.Last, r.Forget = max(r.Lifted, o.Lifted), max(r.Level, o.Level), max(r.Last, o.Last), max(r.Forget, o.Forget)
	if r.Lifted == 0 {
		all := slices.Sorted(slices.Values(slices.Concat(r.Strikes, o.Strikes)))
		r.Strikes = nil
		for _, at := range all {
			if n := len(r.Strikes); n == 0 || at >= r.Strikes[n-1]+1_000 {
				r.Strikes = append(r.Strikes, at)
			}
		}
		if n := len(r.Strikes); n > 100 {
			r.Strikes = r.Strikes[n-100:]
		}
	}
	if r.About == "" {
		r.About = o.About
	}
}
