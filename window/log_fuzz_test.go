package window

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

// slowLog is the log as a list of what was spent, looked at from one end to the
// other.
type slowLog []slowRecord

type slowRecord struct{ at, units int64 }

func (s slowLog) count(now int64, p Policy) int64 {
	var n int64
	for _, r := range s {
		if r.at > now-p.Window.Milliseconds() {
			n += r.units
		}
	}
	return n
}

// wait returns the time until no more than target units are in the window.
func (s slowLog) wait(now int64, p Policy, target int64) time.Duration {
	if target < 0 {
		return p.Window
	}
	count := s.count(now, p)
	for _, r := range s {
		if count <= target {
			return 0
		}
		if r.at <= now-p.Window.Milliseconds() {
			continue
		}
		if count -= r.units; count <= target {
			return p.Window - millis(now-min(r.at, now))
		}
	}
	return 0
}

// pull moves what lies in the future to now.
func (s slowLog) pull(now int64) {
	for i := range s {
		s[i].at = min(s[i].at, now)
	}
}

func (s *slowLog) spend(now, n int64) {
	s.pull(now)
	*s = append(*s, slowRecord{now, n})
}

// giveBack takes up to n units of those spent at a time.
func (s *slowLog) giveBack(at, n int64) {
	for i := range *s {
		if r := &(*s)[i]; r.at == at {
			back := min(n, r.units)
			r.units -= back
			n -= back
		}
	}
	*s = slices.DeleteFunc(*s, func(r slowRecord) bool { return r.units == 0 })
}

func (s *slowLog) decide(now int64, c *Charge, write bool) []Decision {
	ds := make([]Decision, len(c.Policies))
	fits := true
	for j, p := range c.Policies {
		count := s.count(now, p)
		allowed := c.Cost == 0 || count+c.Cost <= p.Limit
		ds[j] = Decision{Allowed: allowed, Limit: p.Limit, At: now}
		fits = fits && allowed
	}
	spent := write && fits && c.Cost > 0
	if spent {
		s.spend(now, c.Cost)
	} else if write {
		s.pull(now)
	}
	for j, p := range c.Policies {
		d, count := &ds[j], s.count(now, p)
		d.Remaining = max(0, p.Limit-count)
		if !d.Allowed && c.Cost > p.Limit {
			d.RetryAfter = Never
		} else if !d.Allowed {
			d.RetryAfter = s.wait(now, p, p.Limit-c.Cost)
		}
		d.ResetAfter = s.wait(now, p, 0)
		d.EffectiveWindow = p.Window
		if !spent || d.Remaining == 0 {
			d.EffectiveWindow = s.wait(now, p, min(p.Limit, count)-1)
		}
	}
	return ds
}

// FuzzLog compares the log with a list, on any calls and any clock. The first
// policy only makes both remember for long enough.
func FuzzLog(f *testing.F) {
	f.Add([]byte{0, 10, 0, 5, 1, 1, 1, 0, 10, 0, 5, 1, 1, 1})
	for _, seed := range []string{"spend", "a longer line of calls, most of them small", "settle\x05\x00\x00\x07\xff\x05\xff\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const memory = 1 << 30              // ms
		data = data[:min(len(data), 7*300)] // the list is slow
		log, slow := &kept{Algorithm: Log{}}, new(slowLog)
		now, newest := logStart, logStart
		for len(data) >= 7 {
			op, dt, cost := data[0], int64(int16(binary.LittleEndian.Uint16(data[1:]))), int64(data[3])
			limit, length := int64(data[4]), 1+int64(binary.LittleEndian.Uint16(data[5:]))
			data = data[7:]
			if op&8 != 0 { // far more units
				cost, limit = cost<<35, limit<<36
			}
			if op&16 == 0 { // mostly small steps
				dt %= 16
			}
			now = max(now+dt, newest-memory/2)
			newest = max(newest, now)
			c := &Charge{Cost: cost, Policies: []Policy{
				logPolicy(MaxProduct, memory), logPolicy(limit, length), logPolicy(limit/2, 1+length/2),
			}}
			at := now - int64(op>>5)
			switch op & 7 {
			case 0:
				if got, want := log.peek(now, c)[1:], slow.decide(now, c, false)[1:]; !slices.Equal(got, want) {
					t.Fatalf("peek(%+v) at %d = %+v, want %+v", c, now, got, want)
				}
			case 1:
				if cost > 0 {
					log.add(now, c, cost)
					slow.spend(now, cost)
				}
			case 2:
				if cost > 0 {
					log.refund(now, c, at, cost)
					slow.giveBack(at, cost)
				}
			case 3:
				c.Cost = min(c.Cost, limit/2) // passes if there is room
				fallthrough
			default:
				if got, want := log.take(now, c)[1:], slow.decide(now, c, true)[1:]; !slices.Equal(got, want) {
					t.Fatalf("take(%+v) at %d = %+v, want %+v", c, now, got, want)
				}
			}
			log.check(t)
		}
	})
}
