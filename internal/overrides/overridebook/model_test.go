package overridebook

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

var (
	schedules = flag.Int("schedules", 2_000, "random schedules of TestModel")
	seed      = flag.Uint64("seed", 0, "the first schedule of TestModel; 0: a random one")
)

// TestModel has Caddys share a store through random schedules of all that may happen to overrides: changes by
// each Caddy, ends, pauses, kills and starts with and without Caddy's storage, a store that is emptied, put back to
// an older state, away, or read at a replica that lags, and writes whose answer is lost. After the last event and two looks
// of each Caddy, all agree. The last change of a key that any living Caddy has known holds, or a later one.
func TestModel(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	failed := 0
	for n := range *schedules {
		var told []string
		var err error
		synctest.Test(t, func(t *testing.T) {
			m := &model{t: t, rand: rand.New(rand.NewPCG(first+uint64(n), 0)), effects: make(map[string][]effect)}
			err, told = m.run(), m.told
		})
		if err == nil {
			continue
		}
		if failed++; failed <= 5 {
			t.Errorf("-schedules 1 -seed %d: %v\n%s", first+uint64(n), err, strings.Join(told, "\n"))
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d schedules failed", failed, *schedules)
	}
}

var modelKeys = []string{"anna", "bert", "carl", "dora"}

// effect is what a change does to a key.
type effect struct {
	change int  // its number
	live   bool // whether there is a record then
	until  time.Time
}

// ended reports whether there was a record that has ended.
func (e effect) ended() bool { return !e.until.IsZero() && !time.Now().Before(e.until) }

// model is a run of a schedule.
type model struct {
	t        *testing.T
	rand     *rand.Rand
	store    modelStore
	caddys   []*modelCaddy
	stored   []*storagetest.Storage // of Caddys that were killed
	changes  int
	effects  map[string][]effect // by key, of all changes that have happened, or may have
	ends     bool                // no more events come
	refused  []string            // reasons of changes that have not happened
	nested   bool                // an event happens within another one
	changing *modelCaddy         // waits for the answer to a write
	told     []string
}

type modelCaddy struct {
	name    string
	book    *Book
	storage *storagetest.Storage
	paused  bool
	has     map[string]int // the change by which each key has a record
	knew    map[string]int // the last change of each key that it has known
}

func (m *model) tell(format string, args ...any) {
	m.told = append(m.told, fmt.Sprintf(format, args...))
}

func (m *model) run() error {
	m.store.now = m
	for range 2 {
		m.start(new(storagetest.Storage))
	}
	for range 10 + m.rand.IntN(25) {
		m.event()
	}
	m.tell("the end")
	m.ends = true
	m.store.away, m.store.stale = false, nil
	for range 2 {
		time.Sleep(time.Second)
		for _, c := range m.caddys {
			m.look(c)
		}
	}
	return m.check()
}

// event has something happen.
func (m *model) event() {
	time.Sleep(time.Duration(m.rand.IntN(2000)) * time.Millisecond)
	c := m.caddys[m.rand.IntN(len(m.caddys))]
	if c == m.changing {
		return
	}
	switch n := m.rand.IntN(100); {
	case n < 25:
		if !c.paused {
			m.look(c)
		}
	case n < 55:
		if !c.paused {
			m.change(c)
		}
	case n < 62:
		c.paused = !c.paused
		m.tell("%s paused: %t", c.name, c.paused)
	case n < 67:
		m.store.hash = nil
		m.tell("FLUSHALL")
	case n < 74:
		m.store.snapshots = append(m.store.snapshots, maps.Clone(m.store.hash))
		m.tell("snapshot %d: %v", len(m.store.snapshots)-1, m.store.hash)
	case n < 81:
		if of := len(m.store.snapshots); of > 0 {
			n := m.rand.IntN(of)
			m.store.hash = maps.Clone(m.store.snapshots[n])
			m.tell("restored snapshot %d", n)
		}
	case n < 84:
		if of := len(m.store.snapshots); of > 0 {
			m.store.stale = &m.store.snapshots[m.rand.IntN(of)]
			m.tell("a replica lags")
		}
	case n < 90:
		m.store.away = !m.store.away
		m.tell("away: %t", m.store.away)
	case n < 96 && !m.nested:
		storage := new(storagetest.Storage)
		if of := len(m.stored); of > 0 && m.rand.IntN(2) == 0 {
			storage = m.stored[m.rand.IntN(of)]
		}
		m.start(storage)
	case len(m.caddys) > 1 && !m.nested:
		m.tell("%s is killed", c.name)
		m.caddys = slices.DeleteFunc(m.caddys, func(o *modelCaddy) bool { return o == c })
		synctest.Wait()
		m.stored = append(m.stored, c.storage.Copy())
	}
}

func (m *model) start(storage *storagetest.Storage) {
	c := &modelCaddy{name: "caddy " + strconv.Itoa(m.rand.IntN(1000)), book: m.store.bookOn(m.t, storage), storage: storage, has: make(map[string]int), knew: make(map[string]int)}
	m.tell("%s starts", c.name)
	m.note(c)
	m.caddys = append(m.caddys, c)
	m.look(c)
}

func (m *model) look(c *modelCaddy) {
	if !m.nested {
		m.store.loseAnswer, m.store.loseCall = !m.ends && m.rand.IntN(8) == 0, !m.ends && m.rand.IntN(8) == 0
	}
	c.book.Look(context.Background())
	m.tell("%s looks", c.name)
	m.note(c)
}

// change changes records at a Caddy.
func (m *model) change(c *modelCaddy) {
	number := m.changes - 1 // happens before the one that waits for its answer
	if !m.nested {
		m.changes += 2
		number = m.changes
	}
	var what []effect
	var keys []string
	record := func(key string) overrides.Record {
		r := overridestest.Denied(key)
		r.Zone, r.Reason = "z", strconv.Itoa(number)
		if m.rand.IntN(3) == 0 {
			r.TTL = strconv.Itoa(1+m.rand.IntN(20)) + "s"
		}
		if err := r.Complete(time.Now()); err != nil {
			m.t.Fatal(err)
		}
		e := effect{number, true, time.Time{}}
		if r.Until != nil {
			e.until = *r.Until
		}
		what, keys = append(what, e), append(keys, key)
		return r
	}
	remove := func(key string) {
		what, keys = append(what, effect{number, false, time.Time{}}), append(keys, key)
	}
	var edit func(*Book) (Copy, error)
	change := func(f func(all []overrides.Record) ([]overrides.Record, error)) {
		edit = func(b *Book) (Copy, error) { return b.Change(context.Background(), "", f) }
	}
	errNone := errors.New("no such record")
	one := modelKeys[m.rand.IntN(len(modelKeys))]
	switch n := m.rand.IntN(10); {
	case n < 6:
		r := record(one)
		change(func(all []overrides.Record) ([]overrides.Record, error) {
			return append(slices.DeleteFunc(all, func(o overrides.Record) bool { return o.ID == r.ID }), r), nil
		})
		m.tell("%d: %s sets %s until %v", number, c.name, one, r.Until)
	case n < 9:
		remove(one)
		change(func(all []overrides.Record) ([]overrides.Record, error) {
			left := slices.DeleteFunc(slices.Clone(all), func(o overrides.Record) bool { return *o.Key == one })
			if len(left) == len(all) {
				return nil, errNone
			}
			return left, nil
		})
		m.tell("%d: %s deletes %s", number, c.name, one)
	default:
		var all []overrides.Record
		for _, key := range modelKeys {
			if m.rand.IntN(2) == 0 {
				all = append(all, record(key))
			} else {
				remove(key)
			}
		}
		edit = func(b *Book) (Copy, error) { return b.Replace(context.Background(), "", all) }
		m.tell("%d: %s replaces all by %d: %v", number, c.name, len(all), keys)
	}
	if !m.nested {
		m.store.between = m.rand.IntN(4) == 0
	}
	m.store.loseAnswer, m.store.loseCall = m.rand.IntN(8) == 0, m.rand.IntN(8) == 0
	if !m.nested {
		m.changing = c
	}
	_, err := edit(c.book)
	m.store.loseAnswer, m.store.loseCall, m.store.between = false, false, false
	if !m.nested {
		m.changing = nil
	}
	m.tell("%d: %v", number, err)
	switch {
	case err == nil || errors.Is(err, window.ErrUnknown):
		for i, key := range keys {
			m.effects[key] = append(m.effects[key], what[i])
			if err == nil {
				c.knew[key] = max(c.knew[key], number)
				m.tell("    %s knows %d of %s", c.name, number, key)
			}
		}
	default:
		m.refused = append(m.refused, strconv.Itoa(number))
	}
	m.note(c)
}

// records returns the records that hold at a Caddy, by their keys.
func (c *modelCaddy) records() map[string]string {
	known, _ := c.book.Current()
	records := make(map[string]string)
	for _, r := range known.Records {
		if !r.Expired(time.Now()) {
			records[*r.Key] = r.Reason
		}
	}
	return records
}

// note notes what a Caddy knows now.
func (m *model) note(c *modelCaddy) {
	known, _ := c.book.Current()
	has := make(map[string]int)
	for _, r := range known.Records {
		has[*r.Key], _ = strconv.Atoi(r.Reason)
	}
	for _, key := range modelKeys {
		before, now := c.has[key], has[key]
		if now == 0 && before != 0 { // it has heard of one change or another that took the record out
			for _, e := range m.effects[key] {
				if e.change == before && e.ended() {
					break
				}
				if e.change > before && !e.live {
					now = e.change
					break
				}
			}
		}
		c.knew[key] = max(c.knew[key], now)
	}
	c.has = has
	m.tell("    %s has %v, version %s", c.name, has, known.Version)
}

// check reports what is wrong after the last event.
func (m *model) check() error {
	want := m.caddys[0].records()
	for _, c := range m.caddys {
		if got := c.records(); !maps.Equal(got, want) {
			return fmt.Errorf("%s has %v, %s has %v", m.caddys[0].name, want, c.name, got)
		}
		known, lost := c.book.Current()
		if version := m.store.hash["v"]; known.Version != version || lost {
			return fmt.Errorf("%s has version %s (lost: %t), the store has %s", c.name, known.Version, lost, version)
		}
	}
	for _, key := range modelKeys {
		got, _ := strconv.Atoi(want[key])
		best := 0
		for _, c := range m.caddys {
			best = max(best, c.knew[key])
		}
		if slices.Contains(m.refused, want[key]) {
			return fmt.Errorf("%s: change %d was refused, and holds", key, got)
		}
		if got >= best && got > 0 {
			continue
		}
		mayBeAbsent := best == 0 && got == 0
		for _, e := range m.effects[key] {
			if e.change >= best && (!e.live || e.ended()) {
				mayBeAbsent = true
			}
		}
		if got > 0 || !mayBeAbsent {
			return fmt.Errorf("%s: change %d holds, and a Caddy knew change %d", key, got, best)
		}
	}
	return nil
}
