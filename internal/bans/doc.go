// Package bans decides who is banned, and for how long: a key that a limit denies again and again is out for a time, longer
// each time. A [Table] keeps the bans of a process. Redis keeps those of a fleet, by the script bans of package lua, which
// decides field for field as a Table does.
//
// All times are Unix milliseconds by the clock of the store, and all lengths are milliseconds. Numbers stay below 2^53.
package bans

import "context"

// Store keeps bans.
type Store interface {
	// ExchangeBans makes the writes of ask, one after the other, and returns what has changed since the change that
	// the asker knows.
	ExchangeBans(ctx context.Context, ask Ask) (Answer, error)
}

// Ask is what a process writes, and what it knows.
type Ask struct {
	// The newest change that is known, and the member that it was of; 0 and empty: none is known.
	Known   int64
	Witness string
	Writes  []Write
}

// Op is what a Write does.
type Op string

// The writes.
const (
	Strike Op = "strike" // notes a denial: by Rule and Draw
	Set    Op = "set"    // bans for a time: For and Keep
	Lift   Op = "lift"   // ends a ban
	Merge  Op = "merge"  // brings what the store may have lost: Record
)

// Write is one change of one member. A member is a key of a zone, a network or a name for either. Former is the name
// that the member had before, under a former secret, or empty: its record moves.
type Write struct {
	Op             Op
	Member, Former string
	About          string // what the record says of itself; a strike and a lift keep what is there
	Rule           Rule
	Draw           int64 // from 0 to 999: how much of Spread a ban lasts longer
	For, Keep      int64 // how long the ban lasts, and how long its level is kept after that
	Record         Record
}

// Answer is what a store has after the writes.
type Answer struct {
	Now int64 // by the store's clock
	// Up to which change Changes tell. More: there are further ones.
	Change int64
	More   bool
	// Whether the store does not know the change that the asker knows: the store has lost it, or has forgotten the
	// record of the witness in its time. Changes are then all that the store has.
	Lost bool
	// Whether each write changed who is banned, or until when.
	Done    []bool
	Changes []Change
}

// Change is a member of which a ban began, ended or changed, in the order of the changes.
type Change struct {
	Member string
	Record Record
}

const (
	// MostRecords is how many records a store keeps. Of more, those go first that are the first to be forgotten.
	MostRecords = 100_000
	// MostChanges is how many changes an Answer has.
	MostChanges = 1_000
	// tidied is how many records a call forgets at most because their time is over, and because there are too many.
	tidied = 1_000
	// betweenStrikes is the time in which one strike counts.
	betweenStrikes = 1_000
)
