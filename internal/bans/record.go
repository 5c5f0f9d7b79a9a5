package bans

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
)

// Record is what a store knows of a member.
type Record struct {
	Change int64 // the number of the change that made it what it is; 0: no ban ever began
	Until  int64 // the end of the last ban; 0: there was none
	Began  int64 // when the last ban began
	Level  int64 // how many times longer bans grow, as of Last
	Last   int64 // the last strike that counted
	Lifted int64 // when an operator last ended a ban
	Forget int64 // when nothing of the record is of use any more
	// The times of strikes that may lead to a ban, the oldest first.
	Strikes []int64
	About   string // of whoever writes records; any text without a line break
}

// Rule is how a zone bans.
type Rule struct {
	Length    int64 // of the first ban
	After, In int64 // After strikes within In lead to a ban; After is at most MostStrikes
	Factor    int64 // thousandths: how much longer each ban is than the one before
	Max       int64 // the longest ban, without Spread
	Halve     int64 // the level falls by one in each such time after a ban without a strike
	Spread    int64 // thousandths of the length that a ban lasts longer, at random
	Pardon    int64 // so long after a lift, denials are no strikes: the limit still counts what was before
}

// MostStrikes is how many strikes a rule may ask for.
const MostStrikes = 100

// Longest is the longest that a rule may name.
const Longest = 366 * 24 * 3600 * 1000

// Check reports what is wrong with a rule, in words for an operator, and which option says it.
func (r *Rule) Check() (option string, err error) {
	for _, l := range []struct {
		option string
		n      int64
		least  int64
	}{{"for", r.Length, betweenStrikes}, {"in", r.In, betweenStrikes}, {"max", r.Max, r.Length}, {"halve", r.Halve, betweenStrikes}} {
		if l.n < l.least || l.n > Longest {
			return l.option, fmt.Errorf("must be from %s to %s", normalize.Duration(time.Duration(l.least)*time.Millisecond), normalize.Duration(Longest*time.Millisecond))
		}
	}
	switch {
	case r.After < 1 || r.After > MostStrikes:
		return "after", fmt.Errorf("must be from 1 to %d denials", MostStrikes)
	case r.Factor != 1000 && (r.Factor < 1100 || r.Factor > 1_000_000_000_000):
		return "factor", errors.New("must be 1, or from 1.1 to 1000000000")
	case r.Spread < 0 || r.Spread > 1000:
		return "spread", errors.New("must be from 0% to 100%")
	}
	return "", nil
}

// length returns how long a ban of a level lasts without Spread, and the level from which on bans do not grow. Like the
// script, it reckons in doubles.
func (r *Rule) length(level int64) (length, top int64) {
	length = r.Length
	for next := r.Length; r.Factor > 1000 && next < r.Max; top++ {
		next = int64(min(float64(r.Max), math.Floor(float64(next)*float64(r.Factor)/1000)))
		if top < level {
			length = next
		}
	}
	return length, top
}

// isBanned reports whether a ban is in force. A ban that begins later than its own length from now is not: the clock has
// stepped back, and strikes must not wait until the clock has caught up.
func (r *Record) isBanned(now int64) bool {
	return now < r.Until && r.Until-now <= 2*(r.Until-r.Began)
}

// Left returns how long the ban lasts from now on, 0 if none is in force, and never longer than the whole ban.
func (r *Record) Left(now int64) int64 {
	return max(0, min(r.Until-now, r.Until-r.Began))
}

// strike notes a denial. It reports whether a ban begins.
func (r *Record) strike(now, draw int64, rule *Rule) bool {
	isPardoned := r.Lifted > 0 && now >= r.Lifted && now-r.Lifted < rule.Pardon
	if r.isBanned(now) || isPardoned || r.Last > 0 && now >= r.Last && now-r.Last < betweenStrikes {
		return false
	}
	if since := max(r.Until, r.Last); rule.Halve > 0 && now > since {
		r.Level = max(0, r.Level-(now-since)/rule.Halve)
	}
	length, top := rule.length(r.Level)
	r.Level, r.Last = min(r.Level, top), now
	r.Strikes = slices.DeleteFunc(r.Strikes, func(at int64) bool { return at > now || at <= now-rule.In })
	r.Strikes = append(r.Strikes, now)
	r.Strikes = r.Strikes[max(0, int64(len(r.Strikes))-rule.After):]
	begins := int64(len(r.Strikes)) >= rule.After
	if begins {
		length += int64(math.Floor(float64(length) * float64(rule.Spread*draw) / 1_000_000))
		r.Began, r.Until, r.Strikes = now, now+length, nil
		r.Level = min(r.Level+1, top)
	}
	keep := max(rule.In, r.Level*rule.Halve)
	if begins {
		keep = max(keep, rule.Pardon) // a lift comes before Until
	}
	r.Forget = max(r.Until, now) + keep
	return begins
}

// set bans for a time, from now on.
func (r *Record) set(now, length, keep int64) {
	r.Began, r.Until, r.Strikes = now, now+length, nil
	r.Forget = max(r.Forget, r.Until+keep)
}

// lift ends a ban, and forgives strikes. It reports whether there was a ban.
func (r *Record) lift(now int64) bool {
	if now >= r.Until {
		return false
	}
	r.Until, r.Lifted, r.Strikes = now, now, nil
	r.Level = max(0, r.Level-1)
	return true
}

// merge adds what another record knows of the same member. It reports whether that changes who is banned, or until when.
func (r *Record) merge(o *Record) bool {
	before := r.Until
	if o.Until > r.Until && o.Began >= r.Lifted {
		r.Until, r.Began = o.Until, o.Began
	}
	if o.Lifted > r.Lifted {
		if r.Lifted = o.Lifted; r.Began < o.Lifted {
			r.Until = min(r.Until, o.Lifted)
		}
	}
	r.Level, r.Last, r.Forget = max(r.Level, o.Level), max(r.Last, o.Last), max(r.Forget, o.Forget)
	if r.Lifted == 0 {
		r.Strikes = append(r.Strikes, o.Strikes...)
		slices.Sort(r.Strikes)
		last := int64(-betweenStrikes) // a strike that both have is later in one of them
		r.Strikes = slices.DeleteFunc(r.Strikes, func(at int64) bool {
			if at-last < betweenStrikes {
				return true
			}
			last = at
			return false
		})
		r.Strikes = r.Strikes[max(0, len(r.Strikes)-MostStrikes):]
	}
	if r.About == "" {
		r.About = o.About
	}
	return r.Until != before
}

// numbers are the numbers of a record before those of Strikes.
const numbers = 7

// String returns the record as Redis keeps it: its numbers with blanks between, in the order of the fields, then | and
// About.
func (r *Record) String() string {
	text := make([]byte, 0, 128)
	for i, n := range append([]int64{r.Change, r.Until, r.Began, r.Level, r.Last, r.Lifted, r.Forget}, r.Strikes...) {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(append(append(text, '|'), r.About...))
}

// ErrRecord is the error of Parse.
var ErrRecord = errors.New("not the text of a ban")

// Parse returns the record of a text.
func Parse(text string) (r Record, err error) {
	list, about, ok := strings.Cut(text, "|")
	fields := strings.Split(list, " ")
	if !ok || len(fields) < numbers || len(fields) > numbers+MostStrikes {
		return Record{}, ErrRecord
	}
	r.About = about
	all := make([]int64, len(fields))
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 53)
		if err != nil {
			return Record{}, ErrRecord
		}
		all[i] = int64(n)
	}
	r.Change, r.Until, r.Began, r.Level, r.Last, r.Lifted, r.Forget = all[0], all[1], all[2], all[3], all[4], all[5], all[6]
	if len(all) > numbers {
		r.Strikes = all[numbers:]
	}
	return r, nil
}
